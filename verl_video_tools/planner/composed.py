"""The options of a plan, read from a configuration of verl that a recipe has composed."""

from __future__ import annotations

from typing import Any

from verl_video_tools.planner.recipes import RunOptions


def run_options(config: Any) -> RunOptions:
    """Of a GRPO run.

    Args:
        config: verl's `ppo_trainer` configuration, with `data.mm_processor_kwargs` set.
    """
    parts, kwargs = config.actor_rollout_ref, config.data.mm_processor_kwargs
    actor, rollout = parts.actor, parts.rollout
    return RunOptions(
        batch_size=config.data.train_batch_size,
        mini_batch_size=actor.ppo_mini_batch_size,
        rollouts=rollout.n,
        prompt_length=config.data.max_prompt_length,
        response_length=config.data.max_response_length,
        micro_batch_size=actor.ppo_micro_batch_size_per_gpu,
        min_pixels=kwargs.min_pixels,
        max_pixels=kwargs.max_pixels,
        utilization=rollout.gpu_memory_utilization,
        tp=rollout.tensor_model_parallel_size,
        ulysses=actor.ulysses_sequence_parallel_size,
        offload=actor.fsdp_config.optimizer_offload,
        reference=actor.use_kl_loss,
        ref_offload=parts.ref.fsdp_config.param_offload,
        entropy=actor.entropy_coeff > 0,
        freeze_vision=actor.freeze_vision_tower,
        lora_rank=parts.model.lora_rank,
    )
