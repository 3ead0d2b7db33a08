"""Frames that were shown together, as one picture: each small, with its time below it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from verl_video_tools.core.messages import ImagePart
from verl_video_tools.video import linspace_indices

CELL_PIXELS = 192
"""Longer side of a frame at most."""
MAX_CELLS = 100
"""Of more frames so many are drawn, evenly spread, the first and the last among them."""
_LABEL_PIXELS = 16


def contact_sheet(images: Sequence[ImagePart]) -> Image.Image:
    """An RGB picture, row by row.

    Args:
        images: at least one; each with its pixels.
    """
    drawn = [images[index] for index in linspace_indices(0, len(images) - 1, min(len(images), MAX_CELLS))]
    cells = [_small(image) for image in drawn]
    columns = math.ceil(math.sqrt(len(cells)))
    width, height = max(cell.width for cell in cells), max(cell.height for cell in cells) + _LABEL_PIXELS
    sheet = Image.new("RGB", (columns * width, math.ceil(len(cells) / columns) * height), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, cell) in enumerate(zip(drawn, cells, strict=True)):
        left, top = number % columns * width, number // columns * height
        sheet.paste(cell, (left, top))
        draw.text((left + 2, top + height - _LABEL_PIXELS + 2), f"{image.record.timestamp_seconds:.1f} s", fill="black")
    return sheet


def _small(image: ImagePart) -> Image.Image:
    assert image.pixels_HWC is not None, "what a model is shown has been decoded"
    picture = Image.fromarray(image.pixels_HWC)
    picture.thumbnail((CELL_PIXELS, CELL_PIXELS))
    return picture
