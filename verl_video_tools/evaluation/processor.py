"""The sizes that a model's processor leaves untouched, by the model's name."""

from __future__ import annotations

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.hub import locate_model
from verl_video_tools.core.types import PixelEnvelope


def envelope_of_model(model: str | None, min_pixels: int | None = None, max_pixels: int | None = None) -> PixelEnvelope:
    """The envelope of a model's image processor; any size where no model is named.

    Args:
        model: folder or name on Hugging Face.
        min_pixels, max_pixels: as `data.mm_processor_kwargs` in training; both or neither.

    Raises:
        UsageError: it cannot be loaded, is of another kind, or only one bound is given, or bounds without a model.
    """
    if model is None:
        if min_pixels is not None or max_pixels is not None:
            raise UsageError("min_pixels and max_pixels are bounds of a processor; name the model as well")
        return PixelEnvelope()
    model = locate_model(model)
    from transformers import AutoImageProcessor

    from verl_video_tools.video import envelope_of

    try:
        processor = AutoImageProcessor.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load a processor from {model!r}: {error}") from error
    return envelope_of(processor, {"min_pixels": min_pixels, "max_pixels": max_pixels})
