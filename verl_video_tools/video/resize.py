"""Sizes at which frames are handed to the image processor, chosen so that the processor leaves them alone, and their
cost in tokens.

Qwen's image processors resize every image to sides that are multiples of a factor (patch size x merge size) and to
an area between two bounds. An image that already is so passes through unchanged; then decoding can scale straight to
the final size, pixels are resampled once, and the number of tokens is known before anything is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import FrameRequest, PixelEnvelope

MAX_ASPECT_RATIO = 200
"""Qwen's `smart_resize` refuses images that are more elongated."""

Aspect = Literal["fit", "stretch"]
"""What becomes of an image of another shape than its box: shrunk to fit in, or stretched to fill it."""


def missing_sides(width: int | None, height: int | None, original_size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) of a picture: its original size if both sides are None, in proportion if one of them is.

    Args:
        original_size: width and height in pixels.

    Raises:
        ValueError: a side is below one pixel.
    """
    original_width, original_height = original_size
    if height is None:
        height = original_height if width is None else max(1, round(original_height * width / original_width))
        width = original_width if width is None else width
    elif width is None:
        width = max(1, round(original_width * height / original_height))
    if height < 1 or width < 1:
        raise ValueError(f"height and width must be at least 1 pixel, got {height} and {width}")
    return width, height


def fit_box(
    width: int,
    height: int,
    box_width: int,
    box_height: int,
    envelope: PixelEnvelope | None = None,
    rounding: Literal["nearest", "floor"] = "nearest",
) -> tuple[int, int]:
    """Shrink a size to fit a box, keeping the aspect ratio and never enlarging, then fit it into an envelope.

    `rounding` says how the shrunk sides become integers: "nearest" rounds half to even; "floor" truncates as the
    published code of FrameThinker does, float error included (1280x720 in 448x252 gives 448x251).

    Returns:
        (width, height) in pixels; see `fit_envelope` for what the envelope adds.

    Raises:
        ValueError: a side is below one pixel, or the envelope cannot be met.
    """
    if min(width, height, box_width, box_height) < 1:
        raise ValueError(f"sides must be >= 1 pixel, got {width}x{height} in a box of {box_width}x{box_height}")
    scale = min(box_width / width, box_height / height)
    if scale < 1.0:
        to_int = round if rounding == "nearest" else int
        width, height = max(1, to_int(scale * width)), max(1, to_int(scale * height))
    return fit_envelope(width, height, envelope or PixelEnvelope())


def size_in_box(
    width: int, height: int, box_width: int, box_height: int, envelope: PixelEnvelope | None, aspect: Aspect
) -> tuple[int, int]:
    """`fit_box`, or (stretch) the size of the box itself, which loses the aspect ratio, fitted into the envelope.

    Returns:
        (width, height) in pixels; see `fit_envelope` for what the envelope adds.

    Raises:
        ValueError: a side is below one pixel, or the envelope cannot be met.
    """
    if aspect == "stretch":
        width, height = box_width, box_height
    return fit_box(width, height, box_width, box_height, envelope)


def fit_pixels(width: int, height: int, max_pixels: int, envelope: PixelEnvelope | None = None) -> tuple[int, int]:
    """Shrink a size to an area of at most `max_pixels`, keeping the aspect ratio and never enlarging, then fit it into
    an envelope, whose own minimum may enlarge it.

    Sides are truncated, so that the area stays within the limit, as in the published code of VideoZoomer (1920x1080 in
    100,352 pixels gives 422x237).

    Returns:
        (width, height) in pixels; see `fit_envelope` for what the envelope adds.

    Raises:
        ValueError: a side or `max_pixels` is below one pixel, or the envelope cannot be met.
    """
    if min(width, height, max_pixels) < 1:
        raise ValueError(f"sides and area must be >= 1 pixel, got {width}x{height} in {max_pixels} pixels")
    if width * height > max_pixels:
        scale = math.sqrt(max_pixels / (width * height))
        width, height = max(1, int(scale * width)), max(1, int(scale * height))
    return fit_envelope(width, height, envelope or PixelEnvelope())


def fit_envelope(width: int, height: int, envelope: PixelEnvelope) -> tuple[int, int]:
    """The size close to width x height that an image processor with this envelope leaves untouched.

    Each side goes to the nearest multiple of the factor (at least one). If the area is then outside
    [min_pixels, max_pixels], both sides are scaled alike until it is just inside, as Qwen's `smart_resize` does. Where
    that function would miss a bound or refuse the aspect ratio, the nearest size that it accepts is taken.
    With factor 1 the size is returned as it is: there is no processor.

    Returns:
        (width, height) in pixels.

    Raises:
        ValueError: no size of this factor has an area within the bounds.
    """
    factor = envelope.factor
    if factor == 1:
        return width, height
    min_cells = max(1, math.ceil(envelope.min_pixels / factor**2))
    max_cells = envelope.max_pixels // factor**2
    columns, rows = max(1, round(width / factor)), max(1, round(height / factor))
    # The same operations in the same order as `smart_resize`, so that float rounding chooses alike.
    if columns * rows > max_cells > 0:
        ratio = math.sqrt((height * width) / envelope.max_pixels)
        columns = max(1, math.floor(width / ratio / factor))
        rows = max(1, math.floor(height / ratio / factor))
    elif columns * rows < min_cells:
        ratio = math.sqrt(envelope.min_pixels / (height * width))
        columns, rows = math.ceil(width * ratio / factor), math.ceil(height * ratio / factor)
    if not (min_cells <= columns * rows <= max_cells and _aspect(columns, rows) <= MAX_ASPECT_RATIO):
        columns, rows = _nearest_grid(columns, rows, min_cells, max_cells, envelope)
    return columns * factor, rows * factor


def _aspect(columns: int, rows: int) -> float:
    return max(columns, rows) / min(columns, rows)


def _nearest_grid(columns: int, rows: int, min_cells: int, max_cells: int, envelope: PixelEnvelope) -> tuple[int, int]:
    """The accepted grid that differs least, in proportion, from columns x rows. Rare, so every row count is tried."""
    most_cells = min(max_cells, 2 * max(min_cells, columns * rows))
    best: tuple[float, int, int] | None = None
    for new_rows in range(1, math.isqrt(MAX_ASPECT_RATIO * most_cells) + 1):
        fewest = max(math.ceil(min_cells / new_rows), math.ceil(new_rows / MAX_ASPECT_RATIO))
        most = min(most_cells // new_rows, MAX_ASPECT_RATIO * new_rows)
        if fewest <= most:
            new_columns = min(max(columns, fewest), most)
            change = abs(math.log(new_columns / columns)) + abs(math.log(new_rows / rows))
            best = min(best or (change, new_columns, new_rows), (change, new_columns, new_rows))
    if best is None:
        raise ValueError(f"no image with sides that are multiples of {envelope.factor} fits into {envelope}")
    return best[1], best[2]


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
    """Image placeholder tokens of all pictures of a request, before any is decoded.

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
    bounds = {name: value for name, value in (overrides or {}).items() if value is not None}
    if ("min_pixels" in bounds) != ("max_pixels" in bounds):
        raise UsageError(f"mm_processor_kwargs must give both min_pixels and max_pixels or neither, got {bounds}")
    if "min_pixels" in bounds:
        try:
            min_pixels, max_pixels = int(bounds["min_pixels"]), int(bounds["max_pixels"])
        except (TypeError, ValueError) as error:
            raise UsageError(f"min_pixels and max_pixels of mm_processor_kwargs must be whole, got {bounds}") from error
    envelope = PixelEnvelope(factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)
    try:  # here, at the start: later it would fail the frames of every rollout
        fit_envelope(factor, factor, envelope)
    except ValueError as error:
        raise UsageError(
            f"no image has an area from min_pixels={min_pixels} to max_pixels={max_pixels} and sides that are "
            f"multiples of {factor} pixels; give bounds with a multiple of {factor}x{factor}={factor**2} between them"
        ) from error
    return envelope
