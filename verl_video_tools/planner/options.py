"""The options of a GRPO run that its memory depends on: those of our recipes, and those of a composed configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.types import Method, PixelEnvelope


@dataclass(frozen=True)
class RunOptions:
    """Options of a GRPO run. A configuration that lacks one gets the default.

    Attributes:
        batch_size: questions per step.
        rollouts: per question.
        prompt_length, response_length: limits of a rollout, in tokens.
        micro_batch_size: sequences that the actor processes at once on a GPU.
        min_pixels, max_pixels: of an image.
        utilization: part of a GPU's memory that vLLM takes.
        tp: GPUs per inference server.
        ulysses: GPUs among which the actor divides a sequence.
        offload: the actor's weights and optimizer are in host memory while it does not update.
        reference: the loss has a KL term.
        entropy: the loss has an entropy term.
        lora_rank: 0 trains all weights.
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
    reference: bool = False
    entropy: bool = False
    freeze_vision: bool = False
    lora_rank: int = 0

    def envelope(self, factor: int) -> PixelEnvelope:
        """Of images whose sides a model wants to be multiples of `factor` pixels."""
        return PixelEnvelope(factor, self.min_pixels, self.max_pixels)


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


def run_options(config: Any, envelope: PixelEnvelope | None = None) -> RunOptions:
    """The options of a configuration of verl's `ppo_trainer`.

    Args:
        envelope: the pixel bounds of the model's images, instead of `data.mm_processor_kwargs`.
    """
    values = {name: OmegaConf.select(config, key) for name, key in KEYS.items()}
    given = {name: type(getattr(RunOptions, name))(value) for name, value in values.items() if value is not None}
    options = RunOptions(**given)
    if envelope is not None:
        options = replace(options, min_pixels=envelope.min_pixels, max_pixels=envelope.max_pixels)
    if OmegaConf.select(config, "algorithm.use_kl_in_reward"):
        options = replace(options, reference=True)
    return options
