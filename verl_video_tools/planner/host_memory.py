"""Memory of the nodes, in bytes: TransferQueue, Ray's object store, vLLM's processor cache, processes, checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_video_tools.planner.constants import GB, constant
from verl_video_tools.planner.gpu_memory import has_reference, held_parameters, sharded_bytes, trained_parameters
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.planner.workload import Workload


@dataclass(frozen=True)
class HostMemory:
    """Bytes of main memory on one node, but `queue_step` and `checkpoint`, which are of the whole run.

    Attributes:
        mm_cache_gb: vLLM's `mm_processor_cache_gb` for one server, in GiB as vLLM reads it.
    """

    queue_step: float
    queue: float
    object_store: float
    mm_cache_gb: int
    mm_caches: float
    offloaded: float
    processes: float
    frame_cache: float
    shm: float
    checkpoint: float
    num_processes: int

    @property
    def total(self) -> float:
        parts = (self.queue, self.object_store, self.mm_caches, self.offloaded, self.processes, self.frame_cache)
        return sum(parts)


def step_image_tokens(workload: Workload) -> float:
    """Tokens of the images that a step holds: initial frames once per group, those of calls once per rollout.

    Every rollout makes all calls that fit.
    """
    initial = workload.initial_copies * workload.mean_initial_image_tokens
    called = workload.rollouts * workload.max_calls * workload.call_image_tokens
    return workload.groups * (initial + called)


def queue_image_bytes(workload: Workload, model: ModelShape) -> float:
    """Pixels in TransferQueue at the end of a step (`verl_plugin.stored_images`): `payload/bytes`."""
    return step_image_tokens(workload) * model.stored_bytes_per_image_token


def queue_row_bytes(workload: Workload) -> float:
    """The other columns of a step."""
    return workload.groups * workload.rollouts * workload.longest_tokens * constant("row_bytes_per_token")


def groups_per_server(groups: int, servers: int) -> int:
    """Questions of which a server holds rollouts: a group stays together, or is divided if servers are more."""
    return math.ceil(groups / servers)


def rollouts_per_server(groups: int, rollouts: int, servers: int) -> int:
    """At most, as `verl_plugin.group_router` spreads them."""
    shards = max(1, math.ceil(servers / groups))
    return groups_per_server(groups, servers) * math.ceil(rollouts / shards)


def feature_bytes(workload: Workload, model: ModelShape, servers: int) -> float:
    """Features that vLLM's processor cache of one server has to hold for the rollouts under way on it.

    A server with whole groups has initial frames of the mean; with a part of a group they may be the dearest ones.
    """
    num_groups = groups_per_server(workload.groups, servers)
    num_rollouts = rollouts_per_server(workload.groups, workload.rollouts, servers)
    num_initial = num_groups if workload.is_shared else num_rollouts
    is_whole = num_rollouts == num_groups * workload.rollouts
    initial = workload.mean_initial_image_tokens if is_whole else workload.initial_image_tokens
    tokens = num_initial * initial + num_rollouts * workload.max_calls * workload.call_image_tokens
    return tokens * model.feature_bytes_per_image_token


def mm_cache_gb(workload: Workload, model: ModelShape, servers: int) -> int:
    """The least whole number of GiB, with a tenth to spare; never below vLLM's default of 4."""
    return max(4, math.ceil(1.1 * feature_bytes(workload, model, servers) / 2**30))


def checkpoint_bytes(num_parameters: int, num_trained: int) -> float:
    """Of one checkpoint of verl's FSDP engine, all shards: fp32 weights, and both moments of AdamW of trained ones."""
    return num_parameters * constant("weight_bytes") + num_trained * constant("optimizer_bytes")


def agent_workers(groups: int, nodes: int, cores_per_node: int) -> int:
    """Of a run: as many as cores allow, and none without a question, since all rollouts of one stay together."""
    return min(groups, nodes * max(1, cores_per_node // int(constant("worker_cores"))))


def worker_bytes(workload: Workload, model: ModelShape, workers: int) -> float:
    """Of one agent loop worker at its peak: images of its groups are decoded, packed and sent, and kept for rows."""
    groups = math.ceil(workload.groups / workers)
    images = groups * queue_image_bytes(workload, model) / workload.groups
    return constant("worker_process_bytes") + constant("worker_image_copies") * images


def host_memory(
    model: ModelShape, options: RunOptions, workload: Workload, num_gpus: int, gpus_per_node: int, cores_per_node: int
) -> HostMemory:
    """On each node; what is spread over nodes is divided evenly."""
    nodes = math.ceil(num_gpus / gpus_per_node)
    gpus = min(num_gpus, gpus_per_node)
    servers = max(1, num_gpus // options.tp)
    servers_here = math.ceil(servers / nodes)
    workers = agent_workers(workload.groups, nodes, cores_per_node)
    workers_here = math.ceil(workers / nodes)
    images = queue_image_bytes(workload, model)
    cache_gb = mm_cache_gb(workload, model, servers)
    held, trained = held_parameters(model, options), trained_parameters(model, options)
    offloaded = sharded_bytes(held, constant("weight_bytes") * options.offload, num_gpus)
    offloaded += sharded_bytes(trained, constant("optimizer_bytes") * options.offload, num_gpus)
    offloaded += sharded_bytes(model.num_parameters, constant("reference_bytes") * has_reference(options), num_gpus)
    processes = (
        gpus * (constant("trainer_process_bytes") + constant("trainer_image_cache_bytes"))
        + servers_here * constant("server_process_bytes")
        + workers_here * worker_bytes(workload, model, workers)
    )
    object_store = images / nodes
    return HostMemory(
        queue_step=images + queue_row_bytes(workload),
        queue=(images + queue_row_bytes(workload)) / nodes,
        object_store=object_store,
        mm_cache_gb=cache_gb,
        mm_caches=servers_here * cache_gb * 2**30,
        offloaded=gpus * offloaded,
        processes=processes,
        frame_cache=constant("frame_cache_bytes"),
        shm=constant("frame_cache_bytes") + max(2 * GB, object_store) + gpus * constant("shm_process_bytes"),
        checkpoint=checkpoint_bytes(held, trained),
        num_processes=gpus + 2 * servers_here + workers_here,
    )
