"""An estimate of the tokens and the memory that a GRPO run needs, with warnings about what may not fit (`vvt plan`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method, RolloutLimits, VideoInfo
from verl_video_tools.launch.memory import (
    GB,
    ActorMemory,
    Cluster,
    EngineMemory,
    HostMemory,
    ModelShape,
    RunOptions,
    Workload,
    actor_memory,
    engine_memory,
    host_memory,
)
from verl_video_tools.rollout.cost import estimate_cost
from verl_video_tools.rollout.tokens import ModelTokens

HOUR = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
"""The video of a plan without rows."""
TURN_TOKENS = 256
"""Tokens that the policy writes in a turn, for the number of calls that fit. Assumed."""
QUESTION = "What does the man in the blue shirt do after he has closed the door?\n" + "\n".join(
    f"{letter}. He sits down at the table and reads a letter." for letter in "ABCD"
)


KEYS = {
    "batch_size": "data.train_batch_size",
    "rollouts": "actor_rollout_ref.rollout.n",
    "prompt_length": "data.max_prompt_length",
    "response_length": "data.max_response_length",
    "micro_batch_size": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    "min_pixels": "data.mm_processor_kwargs.min_pixels",
    "max_pixels": "data.mm_processor_kwargs.max_pixels",
    "utilization": "actor_rollout_ref.rollout.gpu_memory_utilization",
    "tp": "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "ulysses": "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    "offload": "actor_rollout_ref.actor.fsdp_config.param_offload",
    "reference": "actor_rollout_ref.actor.use_kl_loss",
    "entropy": "actor_rollout_ref.actor.entropy_coeff",
    "freeze_vision": "actor_rollout_ref.actor.freeze_vision_tower",
    "lora_rank": "actor_rollout_ref.model.lora_rank",
}
"""verl's option of each field."""


def recipe_options(method: Method) -> RunOptions:
    """The options of a method's recipe on real data, from its config group; its lengths are those of `recipe_budget`.

    A method whose package has its own config groups gets what all recipes share.
    """
    folder = Path(str(files("verl_video_tools.config"))) / "video_tools"
    paths = [folder / "grpo.yaml", folder / f"{method.name}_grpo.yaml"]
    config = OmegaConf.merge(*(OmegaConf.load(path) for path in paths if path.exists()))
    budget = method.recipe_budget
    lengths = {"max_prompt_length": budget.prompt_tokens, "max_response_length": budget.response_tokens}
    return run_options(OmegaConf.merge(config, {"data": lengths}))


def run_options(config: Any) -> RunOptions:
    """The options of a configuration of verl's `ppo_trainer`."""
    values = {name: OmegaConf.select(config, key) for name, key in KEYS.items()}
    given = {name: type(getattr(RunOptions, name))(value) for name, value in values.items() if value is not None}
    options = RunOptions(**given)
    return replace(options, reference=True) if OmegaConf.select(config, "algorithm.use_kl_in_reward") else options


def plan_workload(method: Method, info: VideoInfo, tokens: ModelTokens, options: RunOptions) -> Workload:
    """The rollouts of a step on videos like `info`."""
    cost = estimate_cost(method, info, tokens, question=QUESTION, turn_tokens=TURN_TOKENS, group_size=options.rollouts)
    first, call = cost.initial_frames, cost.call
    limits = RolloutLimits(options.prompt_length, options.response_length, method.recipe_budget.images)
    return Workload(
        groups=options.batch_size,
        rollouts=options.rollouts,
        is_shared=len(set(cost.group)) == 1,
        initial_frames=first.num_frames,
        initial_tokens=first.tokens,
        initial_image_tokens=first.num_frames * first.frame_tokens,
        mean_initial_image_tokens=fmean(frames.num_frames * frames.frame_tokens for frames in cost.group),
        call_frames=call.num_frames if call else 0,
        call_tokens=call.tokens if call else 0,
        call_image_tokens=call.num_frames * call.frame_tokens if call else 0,
        max_calls=cost.calls_that_fit(limits),
        allowed_calls=cost.max_turns - 1 if call else 0,
        longest_tokens=options.prompt_length + options.response_length,
    )


@dataclass(frozen=True)
class Estimate:
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


def estimate_run(
    method: Method, info: VideoInfo, model: ModelShape, tokens: ModelTokens, options: RunOptions, cluster: Cluster
) -> Estimate:
    """Estimate a run on videos like `info`.

    Raises:
        UsageError: the GPUs or the model cannot be divided as the options say.
    """
    check_division(options, cluster, model)
    workload = plan_workload(method, info, tokens, options)
    actor = actor_memory(model, options, workload, cluster.num_gpus, workload.longest_tokens)
    engine = engine_memory(model, options, cluster.gpu, workload.longest_tokens)
    host = host_memory(model, options, workload, cluster)
    return Estimate(method.name, model, cluster, options, workload, actor, engine, host)


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


def warnings_of(estimate: Estimate) -> Iterator[str]:
    """What may not fit, and what to change."""
    cluster, workload, actor, engine, host = (
        estimate.cluster,
        estimate.workload,
        estimate.actor,
        estimate.engine,
        estimate.host,
    )
    gpu_bytes, limit = cluster.gpu.memory_bytes, estimate.options.prompt_length
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
    beside = actor.beside_engine(estimate.options)
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
    if workload.initial_tokens > limit:
        yield f"the prompt has {workload.initial_tokens:,} tokens: set data.max_prompt_length={workload.initial_tokens}"
    elif workload.call_frames and workload.max_calls < min(2, workload.allowed_calls):
        number = "only one call" if workload.max_calls else "not a single call"
        yield f"{number} of the largest size fits into a rollout's limits"


def as_text(estimate: Estimate) -> str:
    """A table for a terminal, in whole GB."""
    cluster, workload, actor, engine, host = (
        estimate.cluster,
        estimate.workload,
        estimate.actor,
        estimate.engine,
        estimate.host,
    )
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
        f"{estimate.method}, {estimate.model.name} ({estimate.model.num_parameters:,} parameters), "
        f"{cluster.num_gpus} x {cluster.gpu.name}: an estimate, never compared with a GPU",
        *(f"warning: {warning}" for warning in warnings_of(estimate)),
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
