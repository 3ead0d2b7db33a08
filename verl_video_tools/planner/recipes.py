"""The options of our recipes on real data, as far as a plan depends on them. A test compares them with the recipes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verl_video_tools.core.types import RolloutLimits


@dataclass(frozen=True)
class RunOptions:
    """Options of a GRPO run. Lengths in tokens, of the longest rollout; sizes of batches in questions.

    Attributes:
        micro_batch_size: sequences that a GPU's actor holds at once.
        min_pixels, max_pixels: the run's `data.mm_processor_kwargs`.
        utilization: part of a GPU's memory that vLLM takes, `gpu_memory_utilization`.
        tp: GPUs of an inference server, `ROLLOUT_TP`.
        ulysses: GPUs among which the actor divides a sequence.
        offload: actor's weights and optimiser are in host memory while they are not needed.
        lora_rank: of an adapter on the language model's linear layers, `LORA_RANK`; 0 trains all weights.
    """

    batch_size: int = 32
    mini_batch_size: int = 32
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
        mini_batch_size=8,
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
        mini_batch_size=64,
        prompt_length=12_288,
        response_length=16_384,
        micro_batch_size=2,
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
        mini_batch_size=16,
        response_length=16_384,
        micro_batch_size=1,
        min_pixels=784,
        max_pixels=401_408,
    ),
}
"""By method. One without a recipe takes the defaults of `RunOptions`."""


def recipe_options(method: str, budget: RolloutLimits | None = None) -> RunOptions:
    """Of a method's recipe.

    Args:
        budget: the method's `recipe_budget`, from which the lengths are; that of a composition is its file's. None: as
            the method has them by default.
    """
    options = RECIPES.get(method, RunOptions())
    if budget is None:
        return options
    return replace(options, prompt_length=budget.prompt_tokens, response_length=budget.response_tokens)
