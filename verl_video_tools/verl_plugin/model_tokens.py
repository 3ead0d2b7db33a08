"""Token counts by a model's own processor and verl's builder for it, outside a training run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import locate_model
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter
from verl_video_tools.video import PixelEnvelope, envelope_of


def load_model_tokens(processor_path: str, pixel_limits: Mapping[str, int | None] | None = None) -> ModelTokens:
    """The token counts of the processor in a folder, or of a name. Imports torch, transformers and verl.

    Args:
        pixel_limits: the run's `data.mm_processor_kwargs`, see `envelope_of`.

    Raises:
        UsageError: there is no such model (`core.machine.locate_model`), or no processor of a kind that we know.
    """
    processor_path = locate_model(processor_path)
    from transformers import AutoConfig, AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(processor_path)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load a processor from {processor_path!r}: {error}") from error
    try:
        model_type = AutoConfig.from_pretrained(processor_path).model_type
    except (OSError, ValueError):  # a folder may hold a processor alone; verl then takes its default builder
        model_type = None
    return model_tokens(processor.tokenizer, processor, model_type, envelope_of(processor, pixel_limits))


def model_tokens(
    tokenizer: Any, processor: Any, model_type: str | None, envelope: PixelEnvelope, **options: Any
) -> ModelTokens:
    """The token counts of a loaded model.

    Args:
        options: of verl's builder.

    Raises:
        ValueError: the tokenizer is not that of a model of this kind.
    """
    from verl.utils.tokenizer import get_processor_token_id
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    builder = create_continuous_token_builder(tokenizer, hf_model_type=model_type, processor=processor, **options)
    counter = TokenCounter(builder, get_processor_token_id(processor, "image"), envelope.factor)
    return ModelTokens(tokenizer, counter, envelope)
