"""Parts of a frame, as a request names them and as pixels are cut out.

Coordinates are those of the frame as displayed: upright, of the size that `VideoInfo` tells. Pixels are taken to be
square, as everywhere in this package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from verl_video_tools.core.errors import FrameRangeError

BoxUnit = Literal["normalised", "thousandths", "pixels"]
"""What the numbers of a box count: shares of the frame's sides (0 to 1), thousandths of them (0 to 1000, as Qwen3-VL
writes boxes), or pixels of the displayed frame."""

EDGE_TOLERANCE_PIXELS = 1e-6
"""Keeps float error from adding a row of pixels: 0.07 of 100 pixels are 7, not 7.000000000000001."""


class Box(NamedTuple):
    """Edges of a part of a picture; x runs to the right and y down from the upper left corner.

    `right` and `bottom` are where the box ends, so it is `right - left` wide. The unit is the caller's.
    """

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def is_proper(self) -> bool:
        """Whether it covers anything: finite, neither reversed nor empty."""
        sides = (self.width, self.height)  # of finite edges, they may still be beyond all floats
        return all(map(math.isfinite, (*self, *sides))) and min(sides) > 0.0


class PixelBox(NamedTuple):
    """Whole pixels of a displayed frame: columns from `left` up to, but without, `right`; rows likewise."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    def in_unit(self, unit: BoxUnit, width: int, height: int) -> Box:
        """The same box in another unit, of a frame of so many pixels."""
        right, bottom = frame_edges(unit, width, height)
        columns, rows = (right / width, bottom / height)
        return Box(self.left * columns, self.top * rows, self.right * columns, self.bottom * rows)


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a frame.

    Attributes:
        box: left, top, right, bottom.
        unit: of the box.

    Raises:
        ValueError: the box is reversed, empty or not finite, or there is no such unit.
    """

    box: Box
    unit: BoxUnit = "pixels"

    def __post_init__(self) -> None:
        if self.unit not in get_args(BoxUnit):
            raise ValueError(f"the unit of a region is one of {', '.join(get_args(BoxUnit))}, got {self.unit!r}")
        object.__setattr__(self, "box", Box(*self.box))
        if not self.box.is_proper():
            raise ValueError(f"a region needs finite left < right and top < bottom, got {list(self.box)}")

    def in_pixels(self, width: int, height: int) -> PixelBox:
        """The whole pixels of a displayed frame of this size that the region touches.

        Raises:
            FrameRangeError: the region leaves the frame.
        """
        right, bottom = frame_edges(self.unit, width, height)
        if min(self.box) < 0 or self.box.right > right or self.box.bottom > bottom:
            raise FrameRangeError(
                f"region {list(self.box)} leaves the frame of {width}x{height} pixels, which ends at x = {right:g} and "
                f"y = {bottom:g} ({self.unit})"
            )
        columns = _touched(self.box.left, self.box.right, width / right, width)
        rows = _touched(self.box.top, self.box.bottom, height / bottom, height)
        return PixelBox(columns[0], rows[0], columns[1], rows[1])


def frame_edges(unit: BoxUnit, width: int, height: int) -> tuple[float, float]:
    """The right and the lower edge of a frame of so many pixels, in a unit; the left and the upper one are 0."""
    match unit:
        case "normalised":
            return 1.0, 1.0
        case "thousandths":
            return 1000.0, 1000.0
    return float(width), float(height)


def scaled(box: PixelBox, size: tuple[int, int], other_size: tuple[int, int]) -> PixelBox:
    """The pixels of a frame of another size (width, height) that show the same part; some files change it half way."""
    if size == other_size:
        return box
    (width, height), (other_width, other_height) = size, other_size
    columns = _touched(box.left, box.right, other_width / width, other_width)
    rows = _touched(box.top, box.bottom, other_height / height, other_height)
    return PixelBox(columns[0], rows[0], columns[1], rows[1])


def _touched(start: float, end: float, scale: float, num_pixels: int) -> tuple[int, int]:
    """First and last + 1 of the pixels of a side that the range from `start` to `end` touches; one at least."""
    first = min(math.floor(start * scale + EDGE_TOLERANCE_PIXELS), num_pixels - 1)
    last = min(math.ceil(end * scale - EDGE_TOLERANCE_PIXELS), num_pixels)
    return first, max(last, first + 1)
