"""The options of a plan, read from a configuration of verl that a recipe has composed."""

from __future__ import annotations

from typing import Any

from verl_video_tools.core.types import PixelEnvelope
from verl_video_tools.planner.recipes import RunOptions


def run_options(config: Any, envelope: PixelEnvelope | None = None) -> RunOptions:
    """Of a GRPO run.

    Args:
        config: verl's `ppo_trainer` configuration.
        envelope: of the model's images; None: the bounds of `data.mm_processor_kwargs`, which is set.
    """
    parts, data = config.actor_rollout_ref, config.data
    actor, rollout = parts.actor, parts.rollout
    bounds = data.mm_processor_kwargs if envelope is None else envelope
    return RunOptions(
        batch_size=int(data.train_batch_size),
        mini_batch_size=int(actor.ppo_mini_batch_size),
        rollouts=int(rollout.n),
        prompt_length=int(data.max_prompt_length),
        response_length=int(data.max_response_length),
        micro_batch_size=int(actor.ppo_micro_batch_size_per_gpu or 1),
        min_pixels=bounds.min_pixels,
        max_pixels=bounds.max_pixels,
        utilization=float(rollout.gpu_memory_utilization),
        tp=int(rollout.tensor_model_parallel_size),
        ulysses=int(actor.ulysses_sequence_parallel_size),
        offload=bool(actor.fsdp_config.param_offload and actor.fsdp_config.optimizer_offload),
        reference=bool(actor.use_kl_loss or config.algorithm.get("use_kl_in_reward")),
        entropy=float(actor.entropy_coeff) != 0,
        freeze_vision=bool(actor.get("freeze_vision_tower")),
        lora_rank=int(parts.model.lora_rank),
    )
