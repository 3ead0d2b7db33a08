"""Boxes in a picture, and the overlap of two.

A box is `[left, top, right, bottom]`; x runs to the right and y down from the upper left corner. The unit is the
caller's (pixels, or shares of the picture from 0 to 1), and both of a comparison are in the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """Two corners; `right` and `bottom` are where the box ends, so it is `right - left` wide."""

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


def box_iou(first: Sequence[float], second: Sequence[float]) -> float:
    """Intersection over union of two boxes, in [0, 1].

    A box that is reversed, empty or not finite overlaps nothing: 0.0.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    one, other = _box(first), _box(second)
    if not (one.is_proper() and other.is_proper()):
        return 0.0
    # Areas are shares of the smallest box around both, so that neither tiny nor huge boxes leave the range of floats.
    hull_width = max(one.right, other.right) - min(one.left, other.left)
    hull_height = max(one.bottom, other.bottom) - min(one.top, other.top)
    shared_width = min(one.right, other.right) - max(one.left, other.left)
    shared_height = min(one.bottom, other.bottom) - max(one.top, other.top)
    shared = max(0.0, shared_width / hull_width) * max(0.0, shared_height / hull_height)
    areas = [box.width / hull_width * (box.height / hull_height) for box in (one, other)]
    union = min(1.0, max(*areas, sum(areas) - shared))
    return shared / union if shared > 0.0 else 0.0


def _box(numbers: Sequence[float]) -> Box:
    if len(numbers) != 4:
        raise ValueError(f"a box is [left, top, right, bottom], got {numbers!r}")
    return Box(*map(float, numbers))
