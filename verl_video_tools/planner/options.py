"""The options of a GRPO run that its memory depends on: those of our recipes, and those of a composed configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from verl_video_tools.core.types import PixelEnvelope, RolloutLimits


@dataclass(frozen=True)
class RunOptions:
    """Options of a GRPO run. The defaults are those of a method without a recipe.

    Attributes:
        batch_size: questions per step.
        rollouts: per question.
        prompt_length, response_length: limits of a rollout, in tokens.
        micro_batch_size: sequences that the actor processes at once on a GPU.
        min_pixels, max_pixels: of an image, `data.mm_processor_kwargs`.
        utilization: part of a GPU's memory that vLLM takes, `gpu_memory_utilization`.
        tp: GPUs per inference server, `tensor_model_parallel_size`.
        ulysses: GPUs among which the actor divides a sequence.
        offload: the actor's weights and optimizer are in host memory while it does not update.
        reference: the loss has a KL term.
        entropy: the loss has an entropy term.
        lora_rank: `actor_rollout_ref.model.lora_rank`; 0 trains all weights.
    """

    batch_size: int = 32
    rollouts: int = 8
    prompt_length: int = 8192
    response_length: int = 8192
    micro_batch_size: int = 2
    min_pixels: int = 3136
    max_pixels: int = 235_200
    utilization: float = 0.6
    tp: int = 1
    ulysses: int = 1
    offload: bool = True
    reference: bool = True
    entropy: bool = False
    freeze_vision: bool = False
    lora_rank: int = 0


RECIPES = {
    "framethinker": RunOptions(reference=False),
    "videozoomer": RunOptions(
        batch_size=128,
        rollouts=16,
        prompt_length=20_480,
        response_length=32_768,
        micro_batch_size=1,
        min_pixels=25_088,
        max_pixels=100_352,
        utilization=0.7,
        entropy=True,
        ulysses=2,
    ),
    "longvt": RunOptions(
        batch_size=16,
        rollouts=16,
        prompt_length=40_960,
        response_length=16_384,
        micro_batch_size=1,
        min_pixels=784,
        max_pixels=50_176,
        utilization=0.7,
        ulysses=2,
    ),
    "framemind": RunOptions(
        batch_size=64,
        prompt_length=12_288,
        response_length=16_384,
        min_pixels=50_176,
        max_pixels=200_704,
        utilization=0.7,
        tp=4,
        offload=False,
        ulysses=2,
    ),
    "videobrain": RunOptions(
        response_length=16_384,
        min_pixels=4096,
        utilization=0.75,
        entropy=True,
        freeze_vision=True,
        ulysses=2,
    ),
    "compose": RunOptions(  # lengths of the default composition
        batch_size=16,
        response_length=16_384,
        micro_batch_size=1,
        min_pixels=784,
        max_pixels=401_408,
    ),
}
"""By method, on real data. A test compares them with the recipes."""


def recipe_options(method: str, budget: RolloutLimits | None = None) -> RunOptions:
    """The options of a method's recipe.

    Args:
        budget: the method's `recipe_budget`, which sets the lengths. None: the lengths of the default method.
    """
    options = RECIPES.get(method, RunOptions())
    if budget is None:
        return options
    return replace(options, prompt_length=budget.prompt_tokens, response_length=budget.response_tokens)


def run_options(config: Any, envelope: PixelEnvelope | None = None) -> RunOptions:
    """The options of a composed configuration.

    Args:
        config: verl's `ppo_trainer` configuration.
        envelope: the pixel bounds of the model's images. None: `data.mm_processor_kwargs`, which must be set.
    """
    parts, data = config.actor_rollout_ref, config.data
    actor, rollout = parts.actor, parts.rollout
    bounds = data.mm_processor_kwargs if envelope is None else envelope
    return RunOptions(
        batch_size=int(data.train_batch_size),
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
