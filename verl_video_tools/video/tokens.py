"""What an image costs the model in tokens, and what its image processor leaves untouched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import FrameRequest, PixelEnvelope
from verl_video_tools.video.resize import fit_envelope


def image_tokens(width: int, height: int, factor: int) -> int:
    """Image placeholder tokens of an image whose sides are multiples of `factor` pixels (patch size x merge size).

    Raises:
        ValueError: a side is no positive multiple of the factor; the processor would resize such an image.
    """
    if min(width, height, factor) < 1 or width % factor or height % factor:
        raise ValueError(
            f"an image of {width}x{height} pixels is not made of {factor}-pixel cells; size it with `fit_box` first"
        )
    return (width // factor) * (height // factor)


def request_tokens(request: FrameRequest, factor: int) -> int:
    """Image placeholder tokens of all pictures of a request, before any is decoded; a grid is one picture.

    Raises:
        ValueError: see `image_tokens`.
    """
    return len(request) * image_tokens(request.width, request.height, factor)


def envelope_of(processor: Any, overrides: Mapping[str, Any] | None = None) -> PixelEnvelope:
    """The envelope of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL processor, or of its image processor.

    Args:
        processor: a transformers processor, or its `image_processor`.
        overrides: the run's `data.mm_processor_kwargs`, which verl hands to the processor at each call; its
            `min_pixels` and `max_pixels` win over the processor's own.

    Raises:
        UsageError: the processor is of another kind; only one of the two bounds is given, which transformers, taking
            them at call time as a pair, would ignore silently; they are no whole numbers; or no image fits them.
    """
    image_processor = getattr(processor, "image_processor", processor)
    try:
        factor = int(image_processor.patch_size) * int(image_processor.merge_size)
        size = image_processor.size
        min_pixels, max_pixels = int(size["shortest_edge"]), int(size["longest_edge"])
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{type(image_processor).__name__} has no patch_size, merge_size and size with shortest_edge and "
            "longest_edge; expected the processor of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL model"
        ) from error
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    if ("min_pixels" in given) != ("max_pixels" in given):
        raise UsageError(f"mm_processor_kwargs must give both min_pixels and max_pixels or neither, got {given}")
    if "min_pixels" in given:
        try:
            min_pixels, max_pixels = int(given["min_pixels"]), int(given["max_pixels"])
        except (TypeError, ValueError) as error:
            raise UsageError(f"min_pixels and max_pixels of mm_processor_kwargs must be whole, got {given}") from error
    envelope = PixelEnvelope(factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)
    try:  # here, at the start: later it would fail the frames of every rollout
        fit_envelope(factor, factor, envelope)
    except ValueError as error:
        raise UsageError(
            f"no image has an area from min_pixels={min_pixels} to max_pixels={max_pixels} and sides that are "
            f"multiples of {factor} pixels; give bounds with a multiple of {factor}x{factor}={factor**2} between them"
        ) from error
    return envelope
