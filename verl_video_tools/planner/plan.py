"""A plan: everything modelled for one run, why it fits or not, and the options that follow."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method, VideoInfo
from verl_video_tools.planner.constants import GB, GPU
from verl_video_tools.planner.gpu_memory import (
    ActorMemory,
    EngineMemory,
    actor_memory,
    engine_memory,
    resident_while_generating,
)
from verl_video_tools.planner.host_memory import HostMemory, agent_workers, host_memory
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.recipes import RunOptions, recipe_options
from verl_video_tools.planner.seconds import stage_seconds
from verl_video_tools.planner.workload import Workload, plan_workload
from verl_video_tools.rollout.tokens import ModelTokens

VERL_OPTIONS = {
    "offload": (
        "actor_rollout_ref.actor.fsdp_config.param_offload",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload",
    ),
    "reference": ("actor_rollout_ref.actor.use_kl_loss",),
    "entropy": ("actor_rollout_ref.actor.entropy_coeff",),
    "min_pixels": ("++data.mm_processor_kwargs.min_pixels",),
    "max_pixels": ("++data.mm_processor_kwargs.max_pixels",),
}
"""verl's options for fields of `RunOptions` that no variable of a recipe sets."""
ENTROPY_COEFFICIENT = 0.001
"""Of the recipes that have an entropy term."""


@dataclass(frozen=True)
class Cluster:
    """Of equal nodes. `shm_bytes` is None where it is not known."""

    gpu: GPU
    num_gpus: int
    gpus_per_node: int
    host_bytes: float
    cores_per_node: int
    shm_bytes: float | None = None

    @property
    def nodes(self) -> int:
        return math.ceil(self.num_gpus / self.gpus_per_node)


@dataclass(frozen=True)
class Plan:
    """All figures are modelled, in bytes and seconds.

    Attributes:
        method_fields: of the method, as `--set` takes them.
        actor: with the fullest rollouts planned; `warnings` tell of the longest that the limits allow.
        reasons: why it cannot fit; none where it does.
        warnings: what fits and will hurt.
    """

    method: str
    method_fields: tuple[str, ...]
    model: ModelShape
    cluster: Cluster
    options: RunOptions
    workload: Workload
    actor: ActorMemory
    engine: EngineMemory
    host: HostMemory
    seconds: dict[str, float]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.reasons

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def bound_by(self) -> str:
        return max(self.seconds, key=lambda name: self.seconds[name])

    def as_dict(self) -> dict[str, Any]:
        """For a machine."""
        derived = {"fits": self.fits, "step_seconds": self.step_seconds, "bound_by": self.bound_by, "modelled": True}
        totals = {"actor_total_bytes": self.actor.total, "host_total_bytes": self.host.total}
        return asdict(self) | derived | totals | {"settings": settings(self)}


def make_plan(
    method: Method,
    info: VideoInfo,
    model: ModelShape,
    tokens: ModelTokens,
    options: RunOptions,
    cluster: Cluster,
    method_fields: Sequence[str] = (),
) -> Plan:
    """Model a run.

    Args:
        method_fields: those of `method` that were set, for `settings`.

    Raises:
        UsageError: GPUs, model or batch cannot be divided as the options say.
    """
    _check(options, cluster, model)
    workload = plan_workload(method, info, tokens, options)
    actor, at_limits = (
        actor_memory(model, options, workload, cluster.num_gpus, tokens_each)
        for tokens_each in (workload.fullest_tokens, workload.longest_tokens)
    )
    engine = engine_memory(model, options, cluster.gpu, workload.longest_tokens)
    host = host_memory(model, options, workload, cluster.num_gpus, cluster.gpus_per_node, cluster.cores_per_node)
    seconds = stage_seconds(
        model,
        options,
        workload,
        cluster.gpu,
        num_gpus=cluster.num_gpus,
        num_cores=cluster.nodes * cluster.cores_per_node,
        frame_pixels=info.width * info.height,
    )
    reasons, warnings = _judge(options, cluster, workload, actor, engine, host)
    if actor.total <= cluster.gpu.memory_bytes < at_limits.total:
        warnings.append(
            f"a rollout of {workload.longest_tokens:,} tokens, which the limits allow, would take "
            f"{at_limits.total / GB:.0f} GB of a GPU's {cluster.gpu.memory_bytes / GB:.0f} in the update"
        )
    return Plan(
        method=method.name,
        method_fields=tuple(method_fields),
        model=model,
        cluster=cluster,
        options=options,
        workload=workload,
        actor=actor,
        engine=engine,
        host=host,
        seconds=seconds,
        reasons=tuple(reasons),
        warnings=tuple(warnings),
    )


def settings(plan: Plan) -> list[str]:
    """Variables of our recipes, and verl options that follow them on the command line.

    Nodes, batches and lengths are always there, all else only where it is not the recipe's own.
    """
    options, cluster, usual = plan.options, plan.cluster, recipe_options(plan.method)
    # FrameMind's recipe has a variable for the actor alone.
    micro_batch_size = "ACTOR_MICRO_BATCH_SIZE" if plan.method == "framemind" else "MICRO_BATCH_SIZE"
    variables: dict[str, Any] = {
        "NNODES": cluster.nodes,
        "NDEVICES_PER_NODE": min(cluster.num_gpus, cluster.gpus_per_node),
        "ROLLOUT_TP": options.tp,
        "ROLLOUT_N": options.rollouts,
        "TRAIN_BATCH_SIZE": options.batch_size,
        "MINI_BATCH_SIZE": options.mini_batch_size,
        micro_batch_size: options.micro_batch_size,
        "MAX_PROMPT_LENGTH": options.prompt_length,
        "MAX_RESPONSE_LENGTH": options.response_length,
        "MAX_MODEL_LEN": options.prompt_length + options.response_length,
        "MM_CACHE_GB": plan.host.mm_cache_gb,
        "AGENT_WORKERS": agent_workers(options.batch_size, cluster.nodes, cluster.cores_per_node),
    }
    if options.lora_rank:
        variables["LORA_RANK"] = options.lora_rank
    if options.freeze_vision != usual.freeze_vision:
        variables["FREEZE_VISION_TOWER"] = int(options.freeze_vision)
    return [
        *_method_settings(plan),
        *(f"{name}={value}" for name, value in variables.items()),
        f"actor_rollout_ref.actor.ulysses_sequence_parallel_size={options.ulysses}",
        f"actor_rollout_ref.rollout.gpu_memory_utilization={options.utilization}",
        *(
            f"{name}={_value(field, getattr(options, field))}"
            for field, names in VERL_OPTIONS.items()
            if getattr(options, field) != getattr(usual, field)
            for name in names
        ),
    ]


def _method_settings(plan: Plan) -> list[str]:
    """Variables for the method's fields; that of a composition's file has a name of its own."""
    files = [field for field in plan.method_fields if plan.method == "compose" and field.startswith("file=")]
    others = " ".join(field for field in plan.method_fields if field not in files)
    return [
        *(f"COMPOSE={shlex.quote(file.removeprefix('file='))}" for file in files),
        *([f"METHOD_FIELDS={shlex.quote(others)}"] if others else []),
    ]


def _value(field: str, value: Any) -> Any:
    return ENTROPY_COEFFICIENT * value if field == "entropy" else value


def _check(options: RunOptions, cluster: Cluster, model: ModelShape) -> None:
    if cluster.num_gpus > cluster.gpus_per_node and cluster.num_gpus % cluster.gpus_per_node:
        raise UsageError(f"--gpus {cluster.num_gpus} are no whole nodes of {cluster.gpus_per_node}")
    heads = f"{model.heads} heads, {model.kv_heads} of keys and values"
    layers = f"{heads}, and {model.vision_intermediate:,} values inside the vision tower's layers"
    for name, program, fits, divided in (
        ("tp", "vLLM", model.shares_layers, layers),
        ("ulysses", "verl", model.shares_heads, heads),
    ):
        size, gpus = getattr(options, name), cluster.num_gpus
        allowed = ", ".join(str(each) for each in range(1, gpus + 1) if gpus % each == 0 and fits(each))
        if gpus % size:
            raise UsageError(f"--{name} {size} does not divide --gpus {gpus}; it can be {allowed}")
        if not fits(size):
            raise UsageError(
                f"--{name} {size}: {program} cannot divide {model.name} so, which has {divided}; with --gpus {gpus} it "
                f"can be {allowed}"
            )
    if options.mini_batch_size > options.batch_size:
        raise UsageError(
            f"--mini-batch-size {options.mini_batch_size} is more than --batch-size {options.batch_size}, which verl "
            "refuses: an update takes at most a step's questions"
        )


def _judge(
    options: RunOptions,
    cluster: Cluster,
    workload: Workload,
    actor: ActorMemory,
    engine: EngineMemory,
    host: HostMemory,
) -> tuple[list[str], list[str]]:
    has = cluster.gpu.memory_bytes
    reasons, warnings = [], []
    if actor.total > has:
        names = {
            "logits": "logits",
            "layer": "gradients inside a layer",
            "kept": "inputs of layers, and pixels",
            "resident": "weights, gradients and optimiser",
        }
        largest = names[max(names, key=lambda name: float(getattr(actor, name)))]
        reasons.append(
            f"the actor's update takes {actor.total / GB:.0f} GB of a GPU's {has / GB:.0f}, most of it {largest}: "
            "shorter rollouts, a smaller micro-batch, larger Ulysses, or more GPUs"
        )
    if engine.longest_rollouts < 1:
        reasons.append(
            f"vLLM's cache of {max(0.0, engine.kv_cache) / GB:.0f} GB holds no rollout of {workload.longest_tokens:,} "
            "tokens: larger --tp or --utilization"
        )
    beside = resident_while_generating(actor, options)
    if beside + engine.budget > has:
        reasons.append(
            f"while vLLM holds {engine.budget / GB:.0f} GB, {beside / GB:.0f} GB of the actor stay on a GPU of "
            f"{has / GB:.0f}: offload them, or a smaller --utilization"
        )
    if workload.initial_tokens > options.prompt_length:
        reasons.append(f"prompts of {workload.initial_tokens:,} tokens exceed {options.prompt_length:,}")
    if host.total > cluster.host_bytes:
        reasons.append(
            f"a node needs {host.total / GB:.0f} GB of memory and has {cluster.host_bytes / GB:.0f}: a smaller batch, "
            "fewer frames, or more nodes"
        )
    if cluster.shm_bytes is not None and host.shm > cluster.shm_bytes:
        reasons.append(f"/dev/shm needs {host.shm / GB:.0f} GB and has {cluster.shm_bytes / GB:.0f}")
    has_room = workload.initial_tokens <= options.prompt_length
    if has_room and workload.call_frames and workload.max_calls < min(2, workload.allowed_calls):
        fits = "only one call" if workload.max_calls else "not a single call"
        warnings.append(f"{fits} at the largest size fits into a rollout's limits")
    return reasons, warnings
