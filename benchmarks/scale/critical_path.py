"""What bounds a step: measured work of hosts beside modelled work of GPUs, on whole nodes.

While rollouts run, every resource works beside the others: the phase takes as long as the busiest one (a lower bound,
without the time in which resources wait for each other). The queue's reads and the training follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from . import constants as c

Version = Literal["before", "after"]


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """Measured, of one method and version.

    Attributes:
        worker_loop_seconds: CPU seconds of a worker's event loop for a rollout: one after the other.
        worker_seconds: CPU seconds of a worker for a rollout, threads included.
        server_seconds: CPU seconds of an inference server for a rollout; one interpreter, so one after the other.
        queue_bytes: of images, that a training process reads for a rollout in each pass.
        makes_tensors: it reads 8-bit images and makes the tensors itself, on its GPU.
        prefills: times that a group's initial frames are computed, for each server that could.
    """

    worker_loop_seconds: float
    worker_seconds: float
    server_seconds: float
    queue_bytes: float
    makes_tensors: bool
    prefills: float


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """A step of one method, counted by tokens of a rollout.

    Attributes:
        initial_tokens: of the shared prompt; `response_tokens`: turns and observations.
        image_tokens: of both.
    """

    method: str
    family: str
    num_groups: int
    group_size: int
    num_turns: int
    initial_tokens: float
    response_tokens: float
    image_tokens: float

    @property
    def num_rollouts(self) -> int:
        return self.num_groups * self.group_size


@dataclass(frozen=True)
class Step:
    """Seconds of a step. GPU figures are modelled.

    Attributes:
        gpu_rollout: prefill, vision tower and decoding on the busiest server.
        host_wait: how much longer the busiest host resource takes for the same rollouts; GPUs wait.
        queue: reading rows from the queue.
        gpu_training: log-probabilities and update, with what is fixed.
        tensors: images made into tensors by the training processes (modelled).
        bound_by: the resource that bounds the rollouts.
    """

    gpu_rollout: float
    host_wait: float
    queue: float
    gpu_training: float
    tensors: float
    bound_by: str

    @property
    def seconds(self) -> float:
        return self.gpu_rollout + self.host_wait + self.queue + self.gpu_training + self.tensors

    @property
    def gpu_share(self) -> float:
        """Of the step, in which GPUs work."""
        return (self.gpu_rollout + self.gpu_training) / self.seconds


def gpu_rollout_seconds(size: StepSize, prefills: float, num_gpus: int) -> float:
    """Modelled: the work of one inference server, all groups spread evenly."""
    parameters = c.MODEL_PARAMETERS[size.family]
    computed = size.num_groups * prefills * size.initial_tokens + size.num_rollouts * size.response_tokens
    share_of_images = size.image_tokens / (size.initial_tokens + size.response_tokens)
    flops = computed * 2 * parameters + attention_flops(size) * computed / (size.initial_tokens + size.response_tokens)
    flops += computed * share_of_images * c.PATCHES_PER_TOKEN * 2 * c.VISION_PARAMETERS[size.family]
    prefill = flops / num_gpus / (c.GPU_FLOPS * c.PREFILL_UTILISATION)
    sequences = size.num_rollouts / num_gpus
    context = size.initial_tokens + size.response_tokens
    read = 2 * parameters + sequences * context * c.KV_BYTES_PER_TOKEN[size.family]
    decode = size.num_turns * c.TOKENS_PER_TURN * read / (c.GPU_BYTES_PER_SECOND * c.DECODE_UTILISATION)
    return prefill + decode


def attention_flops(size: StepSize) -> float:
    """Of one rollout's forward pass: causal scores and their sums."""
    length = size.initial_tokens + size.response_tokens
    return 2 * c.NUM_LAYERS[size.family] * c.ATTENTION_WIDTH[size.family] * length**2


def gpu_training_seconds(size: StepSize, num_gpus: int) -> float:
    """Modelled: forward passes for log-probabilities, then the update."""
    length = size.initial_tokens + size.response_tokens
    forward = length * 2 * c.MODEL_PARAMETERS[size.family] + attention_flops(size)
    forward += size.image_tokens * c.PATCHES_PER_TOKEN * 2 * c.VISION_PARAMETERS[size.family]
    passes = c.FORWARD_PASSES[size.method] + 3 * c.RECOMPUTATION
    return size.num_rollouts * passes * forward / num_gpus / (c.GPU_FLOPS * c.TRAINING_UTILISATION) + c.FIXED_SECONDS


def tensor_seconds(work: HostWork) -> float:
    """Modelled: a rollout's images copied to a GPU, and there through the model's image processor."""
    if not work.makes_tensors:
        return 0.0
    return work.queue_bytes * (1 / c.BUS_BYTES_PER_SECOND + c.PROCESSOR_TRAFFIC / c.GPU_BYTES_PER_SECOND)


def prefills_per_group(size: StepSize, work: HostWork, num_gpus: int, version: Version) -> float:
    """How often a group's initial frames are computed in a step on so many servers.

    Measured with two servers: that many of those that a group can reach. verl's balancer reaches one for each rollout.
    Ours reaches ceil(servers / groups).
    """
    reached = min(num_gpus, size.group_size) if version == "before" else -(-num_gpus // size.num_groups)
    return reached * work.prefills


def step(size: StepSize, work: HostWork, *, version: Version, nodes: int, gpu_speed: float = 1.0) -> Step:
    """A step on whole nodes, one inference server to a GPU.

    Args:
        gpu_speed: factor on everything that GPUs do.
    """
    num_gpus = nodes * c.GPUS_PER_NODE
    workers = min(size.num_groups, c.AGENT_WORKERS_PER_NODE * nodes)
    prefills = prefills_per_group(size, work, num_gpus, version)
    gpu = gpu_rollout_seconds(size, prefills, num_gpus) / gpu_speed
    rollouts_per_worker = -(-size.num_groups // workers) * size.group_size
    resources = {
        "agent loop worker's event loop": rollouts_per_worker * work.worker_loop_seconds,
        "cores": size.num_rollouts * (work.worker_seconds + work.server_seconds) / (c.CORES_PER_NODE * nodes),
        "inference server's front end": size.num_rollouts / num_gpus * work.server_seconds,
    }
    busiest, host = max(resources.items(), key=lambda item: item[1] / c.CORE_SPEED)
    host /= c.CORE_SPEED
    units = c.QUEUE_UNITS[version][c.NODES.index(nodes)]
    queue_bytes = c.QUEUE_READS * size.num_rollouts * work.queue_bytes
    return Step(
        gpu_rollout=gpu,
        host_wait=max(0.0, host - gpu),
        queue=queue_bytes / units / c.QUEUE_UNIT_BYTES_PER_SECOND,
        gpu_training=gpu_training_seconds(size, num_gpus) / gpu_speed,
        tensors=tensor_seconds(work) * c.QUEUE_READS * size.num_rollouts / num_gpus,
        bound_by="GPUs" if gpu >= host else busiest,
    )


def all_steps(size: StepSize, works: Mapping[Version, HostWork]) -> list[dict[str, Any]]:
    """Rows of the result: versions, nodes, speeds of GPUs."""
    rows = []
    for version, work in works.items():
        for nodes in c.NODES:
            for speed in c.GPU_SPEEDS:
                made = step(size, work, version=version, nodes=nodes, gpu_speed=speed)
                rows.append(
                    {"method": size.method, "version": version, "nodes": nodes, "gpu_speed": speed, "modelled": True}
                    | asdict(made)
                    | {"seconds": made.seconds, "gpu_share": made.gpu_share}
                )
    return rows
