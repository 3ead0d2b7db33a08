"""A plan: the estimated tokens and memory of a run, and warnings about what may not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method, VideoInfo
from verl_video_tools.planner.memory import (
    GB,
    ActorMemory,
    Cluster,
    EngineMemory,
    HostMemory,
    actor_memory,
    engine_memory,
    host_memory,
)
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.options import RunOptions
from verl_video_tools.planner.workload import Workload, plan_workload
from verl_video_tools.rollout.tokens import ModelTokens


@dataclass(frozen=True)
class Plan:
    """An estimate.

    Attributes:
        actor: with rollouts as long as the limits allow.
    """

    method: str
    model: ModelShape
    cluster: Cluster
    options: RunOptions
    workload: Workload
    actor: ActorMemory
    engine: EngineMemory
    host: HostMemory

    @property
    def warnings(self) -> list[str]:
        """What may not fit, and what to change."""
        return list(_warnings(self))


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
    host = host_memory(model, options, workload, cluster)
    return Plan(method.name, model, cluster, options, workload, actor, engine, host)


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


def _warnings(plan: Plan) -> Iterator[str]:
    cluster, workload, actor, engine, host = plan.cluster, plan.workload, plan.actor, plan.engine, plan.host
    gpu_bytes, limit = cluster.gpu.memory_bytes, plan.options.prompt_length
    if actor.total > gpu_bytes:
        yield (
            f"the update needs {_gb(actor.total)} of a GPU's {_gb(gpu_bytes)}, most of it for "
            f"{_largest(actor.parts)}: use shorter rollouts, a smaller micro-batch, a larger "
            "ulysses_sequence_parallel_size, or more GPUs"
        )
    if engine.longest_rollouts < 1:
        yield (
            f"vLLM's cache of {_gb(engine.kv_cache)} holds no rollout of {workload.longest_tokens:,} tokens: use a "
            "larger tensor_model_parallel_size or gpu_memory_utilization"
        )
    beside = actor.beside_engine(plan.options)
    if beside + engine.budget > gpu_bytes:
        yield (
            f"while vLLM holds {_gb(engine.budget)}, {_gb(beside)} of the actor stay on a GPU of {_gb(gpu_bytes)}: "
            "offload them, or use a smaller gpu_memory_utilization"
        )
    if host.total > cluster.host_bytes:
        yield (
            f"a node needs {_gb(host.total)} of memory and has {_gb(cluster.host_bytes)}, most of it for "
            f"{_largest(host.parts)}: use a smaller batch, fewer frames, or more nodes"
        )
    if cluster.shm_bytes is not None and host.shm > cluster.shm_bytes:
        yield f"/dev/shm needs {_gb(host.shm)} and has {_gb(cluster.shm_bytes)}"
    if workload.initial_tokens > limit:
        yield f"the prompt has {workload.initial_tokens:,} tokens: set data.max_prompt_length={workload.initial_tokens}"
    elif workload.call_frames and workload.max_calls < min(2, workload.allowed_calls):
        number = "only one call" if workload.max_calls else "not a single call"
        yield f"{number} of the largest size fits into a rollout's limits"


def as_text(plan: Plan) -> str:
    """The plan as a table for a terminal, in whole GB."""
    cluster, workload, actor, engine, host = plan.cluster, plan.workload, plan.actor, plan.engine, plan.host
    sections = {
        f"actor: a GPU at the peak of the update (has {_gb(cluster.gpu.memory_bytes)})": {
            **_in_gb(actor.parts),
            "total with context": _gb(actor.total),
        },
        "inference engine: a GPU": {
            **_in_gb({"weights": engine.weights, "KV cache": engine.kv_cache, "all of vLLM": engine.budget}),
            "longest rollouts at once": f"{engine.longest_rollouts:.1f}",
        },
        f"a node (has {_gb(cluster.host_bytes)})": {
            **_in_gb(host.parts),
            **_in_gb({"total": host.total, "/dev/shm": host.shm}),
            "mm_processor_cache_gb": str(host.mm_cache_gb),
            "agent.num_workers": str(host.workers),
        },
    }
    lines = [
        f"{plan.method}, {plan.model.name} ({plan.model.num_parameters:,} parameters), "
        f"{cluster.num_gpus} x {cluster.gpu.name}: an estimate, never compared with a GPU",
        *(f"warning: {warning}" for warning in plan.warnings),
        "",
        f"{workload.groups} x {workload.rollouts} rollouts of at most {workload.longest_tokens:,} tokens",
        f"initial frames: {workload.initial_frames}, with the prompt's text {workload.initial_tokens:,} tokens",
        f"a call: {workload.call_frames} frames, {workload.call_tokens:,} tokens; calls that fit: {workload.max_calls}",
    ]
    for title, rows in sections.items():
        lines += [title, *(f"  {name:<32}{value:>10}" for name, value in rows.items())]
    return "\n".join(lines)


def _largest(parts: dict[str, float]) -> str:
    return max(parts, key=lambda name: parts[name])


def _in_gb(parts: dict[str, float]) -> dict[str, str]:
    return {name: _gb(num_bytes) for name, num_bytes in parts.items()}


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / GB:.0f} GB"
