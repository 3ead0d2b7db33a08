"""Token counts by a model's own processor and verl's builder for it, outside a training run."""

from __future__ import annotations

from collections.abc import Mapping

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import locate_model
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter
from verl_video_tools.video import envelope_of


def load_model_tokens(processor_path: str, pixel_limits: Mapping[str, int | None] | None = None) -> ModelTokens:
    """The token counts of the processor in a folder, or of a name. Imports torch, transformers and verl.

    Args:
        pixel_limits: the run's `data.mm_processor_kwargs`, see `envelope_of`.

    Raises:
        UsageError: there is no such model (`core.machine.locate_model`), or no processor of a kind that we know.
    """
    processor_path = locate_model(processor_path)
    from transformers import AutoConfig, AutoProcessor
    from verl.utils.tokenizer import get_processor_token_id
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    try:
        processor = AutoProcessor.from_pretrained(processor_path)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load a processor from {processor_path!r}: {error}") from error
    try:
        model_type = AutoConfig.from_pretrained(processor_path).model_type
    except (OSError, ValueError):  # a folder may hold a processor alone; verl then takes its default builder
        model_type = None
    envelope = envelope_of(processor, pixel_limits)
    builder = create_continuous_token_builder(processor.tokenizer, hf_model_type=model_type, processor=processor)
    counter = TokenCounter(builder, get_processor_token_id(processor, "image"), envelope.factor)
    return ModelTokens(processor.tokenizer, counter, envelope)
