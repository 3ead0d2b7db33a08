"""A plan: the estimated tokens and memory of a run, and warnings about what may not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method, VideoInfo
from verl_video_tools.planner.memory import (
    FRAME_CACHE_BYTES,
    GB,
    GPU,
    ActorMemory,
    EngineMemory,
    HostMemory,
    actor_memory,
    agent_workers,
    engine_memory,
    host_memory,
)
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.options import RunOptions
from verl_video_tools.planner.workload import Workload, plan_workload
from verl_video_tools.rollout.tokens import ModelTokens


@dataclass(frozen=True)
class Cluster:
    """Equal nodes. The defaults are assumed; `shm_bytes` is None where it is not known."""

    gpu: GPU
    num_gpus: int
    gpus_per_node: int
    host_bytes: float = 2048 * GB  # as in a DGX H100
    cores_per_node: int = 96
    shm_bytes: float | None = None

    @property
    def nodes(self) -> int:
        return math.ceil(self.num_gpus / self.gpus_per_node)


@dataclass(frozen=True)
class Plan:
    """An estimate.

    Attributes:
        actor: with rollouts as long as the limits allow.
        warnings: what may not fit, and what to change.
    """

    method: str
    model: ModelShape
    cluster: Cluster
    options: RunOptions
    workload: Workload
    actor: ActorMemory
    engine: EngineMemory
    host: HostMemory
    warnings: tuple[str, ...]


def make_plan(
    method: Method, info: VideoInfo, model: ModelShape, tokens: ModelTokens, options: RunOptions, cluster: Cluster
) -> Plan:
    """Estimate a run on videos like `info`.

    Raises:
        UsageError: the GPUs or the model cannot be divided as the options say.
    """
    check_division(options, cluster, model)
    workload = plan_workload(method, info, tokens, options)
    actor = actor_memory(model, options, workload, cluster.num_gpus, workload.longest_tokens)
    engine = engine_memory(model, options, cluster.gpu, workload.longest_tokens)
    host = host_memory(model, options, workload, cluster.num_gpus, cluster.gpus_per_node, cluster.cores_per_node)
    warnings = tuple(_warnings(options, cluster, workload, actor, engine, host))
    return Plan(method.name, model, cluster, options, workload, actor, engine, host, warnings)


def check_division(options: RunOptions, cluster: Cluster, model: ModelShape) -> None:
    """Raises UsageError for numbers of GPUs that verl or vLLM refuses."""
    gpus = cluster.num_gpus
    if gpus > cluster.gpus_per_node and gpus % cluster.gpus_per_node:
        raise UsageError(f"--gpus {gpus}: must be a multiple of --gpus-per-node {cluster.gpus_per_node}")
    for name, size, program, can_divide in (
        ("tp", options.tp, "vLLM", model.shares_layers),
        ("ulysses", options.ulysses, "verl", model.shares_heads),
    ):
        allowed = [number for number in range(1, gpus + 1) if gpus % number == 0 and can_divide(number)]
        if size not in allowed:
            raise UsageError(
                f"{name}={size}: {program} cannot divide {model.name} ({model.heads} heads, {model.kv_heads} of keys "
                f"and values, MLPs of {model.intermediate:,} and {model.vision_intermediate:,}) among {size} of {gpus} "
                f"GPUs; set one of {', '.join(map(str, allowed))}"
            )


def _warnings(
    options: RunOptions,
    cluster: Cluster,
    workload: Workload,
    actor: ActorMemory,
    engine: EngineMemory,
    host: HostMemory,
) -> Iterator[str]:
    gpu_bytes = cluster.gpu.memory_bytes
    if actor.total > gpu_bytes:
        sizes = {
            "logits": actor.logits,
            "gradients inside a layer": actor.layer,
            "inputs of layers, and pixels": actor.kept,
            "weights, gradients and optimizer": actor.resident,
        }
        yield (
            f"the update needs {_gb(actor.total)} of a GPU's {_gb(gpu_bytes)}, most of it for "
            f"{max(sizes, key=lambda name: sizes[name])}: use shorter rollouts, a smaller micro-batch, a larger "
            "ulysses_sequence_parallel_size, or more GPUs"
        )
    if engine.longest_rollouts < 1:
        yield (
            f"vLLM's cache of {_gb(engine.kv_cache)} holds no rollout of {workload.longest_tokens:,} tokens: use a "
            "larger tensor_model_parallel_size or gpu_memory_utilization"
        )
    beside = actor.beside_engine(options)
    if beside + engine.budget > gpu_bytes:
        yield (
            f"while vLLM holds {_gb(engine.budget)}, {_gb(beside)} of the actor stay on a GPU of {_gb(gpu_bytes)}: "
            "offload them, or use a smaller gpu_memory_utilization"
        )
    if host.total > cluster.host_bytes:
        yield (
            f"a node needs {_gb(host.total)} of memory and has {_gb(cluster.host_bytes)}: use a smaller batch, fewer "
            "frames, or more nodes"
        )
    if cluster.shm_bytes is not None and host.shm > cluster.shm_bytes:
        yield f"/dev/shm needs {_gb(host.shm)} and has {_gb(cluster.shm_bytes)}"
    if workload.initial_tokens > options.prompt_length:
        yield f"the prompt has {workload.initial_tokens:,} tokens: set data.max_prompt_length={workload.initial_tokens}"
    elif workload.call_frames and workload.max_calls < min(2, workload.allowed_calls):
        number = "only one call" if workload.max_calls else "not a single call"
        yield f"{number} of the largest size fits into a rollout's limits"


def as_text(plan: Plan) -> str:
    """The plan as a table for a terminal."""
    cluster, workload, actor, engine, host = plan.cluster, plan.workload, plan.actor, plan.engine, plan.host
    parts = {
        f"actor: a GPU at the peak of the update (has {_gb(cluster.gpu.memory_bytes)})": {
            "weights, gradients, optimizer": _gb(actor.resident),
            "gathered layers": _gb(actor.gathered),
            "kept for the backward pass": _gb(actor.kept),
            "logits and entropy, or a layer": _gb(max(actor.logits, actor.layer)),
            "total with context": _gb(actor.total),
        },
        "inference engine: a GPU": {
            "weights": _gb(engine.weights),
            "KV cache": _gb(engine.kv_cache),
            "all of vLLM": _gb(engine.budget),
            "longest rollouts at once": f"{engine.longest_rollouts:.1f}",
        },
        f"a node (has {_gb(cluster.host_bytes)})": {
            "TransferQueue": _gb(host.queue),
            "Ray's object store": _gb(host.object_store),
            "processor caches": _gb(host.mm_caches),
            "offloaded weights, optimizer": _gb(host.offloaded),
            "processes": _gb(host.processes),
            "frame cache": _gb(FRAME_CACHE_BYTES),
            "total": _gb(host.total),
            "/dev/shm": _gb(host.shm),
            "mm_processor_cache_gb": f"{host.mm_cache_gb}",
            "agent.num_workers": f"{agent_workers(workload.groups, cluster.nodes, cluster.cores_per_node)}",
        },
    }
    lines = [
        f"{plan.method}, {plan.model.name} ({plan.model.num_parameters:,} parameters), "
        f"{cluster.num_gpus} x {cluster.gpu.name}: an estimate",
        *(f"warning: {warning}" for warning in plan.warnings),
        "",
        f"{workload.groups} x {workload.rollouts} rollouts of at most {workload.longest_tokens:,} tokens",
        f"initial frames: {workload.initial_frames}, with the prompt's text {workload.initial_tokens:,} tokens",
        f"a call: {workload.call_frames} frames, {workload.call_tokens:,} tokens; calls that fit: {workload.max_calls}",
    ]
    for title, rows in parts.items():
        lines += [title, *(f"  {name:<32}{value:>10}" for name, value in rows.items())]
    return "\n".join(lines)


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / GB:.1f} GB" if num_bytes < 10 * GB else f"{num_bytes / GB:.0f} GB"
