"""Boxes and points in a picture: their geometry, and how well one box meets another.

A box is `[left, top, right, bottom]`, a point `[x, y]`; x runs to the right and y down from the upper left corner. The
unit is the caller's (pixels, or shares of the picture from 0 to 1), and both of a comparison are in the same one.
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

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

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
    shared, union = _shares_of_hull(one, other)
    return shared / union if shared > 0.0 else 0.0


def box_giou(first: Sequence[float], second: Sequence[float]) -> float:
    """Generalised intersection over union, in [-1, 1] (Rezatofighi et al. 2019, https://arxiv.org/abs/1902.09630).

    IoU less the share of the smallest box around both that neither covers, so it also tells how far apart two boxes
    are. A box that is reversed, empty or not finite gives -1.0, the least: it must not be worth more than one that
    misses. `giou_reward` is the same on a scale from 0 to 1.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    one, other = _box(first), _box(second)
    if not (one.is_proper() and other.is_proper()):
        return -1.0
    shared, union = _shares_of_hull(one, other)
    return (shared / union if shared > 0.0 else 0.0) - (1.0 - union)


def giou_reward(box: Sequence[float], truth: Sequence[float]) -> float:
    """(1 + GIoU) / 2, in [0, 1]; 0.0 for a box that is reversed, empty or not finite.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    return min(1.0, max(0.0, (1.0 + box_giou(box, truth)) / 2.0))


def centre_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Distance of two boxes' centres, in their unit; infinite where one is reversed, empty or not finite.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    one, other = _box(first), _box(second)
    if not (one.is_proper() and other.is_proper()):
        return math.inf
    return math.dist(one.centre, other.centre)


def centre_reward(box: Sequence[float], truth: Sequence[float]) -> float:
    """1 - the centres' distance over the diagonal of the smallest box around both, in [0, 1]: 1 where centres coincide.

    The ratio is that of Distance-IoU (Zheng et al. 2020, https://arxiv.org/abs/1911.08287), there squared. 0.0 for a
    box that is reversed, empty or not finite.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    one, other = _box(box), _box(truth)
    if not (one.is_proper() and other.is_proper()):
        return 0.0
    hull = _hull(one, other)
    return max(0.0, 1.0 - math.dist(one.centre, other.centre) / math.hypot(hull.width, hull.height))


def point_in_box(point: Sequence[float], box: Sequence[float]) -> bool:
    """Whether a point lies in a box, its left and upper edge included, its right and lower edge not.

    False for a point that is not finite, and for a box that is reversed, empty or not finite.

    Raises:
        ValueError: the point does not consist of two numbers, or the box of four.
    """
    if len(point) != 2:
        raise ValueError(f"a point is [x, y], got {point!r}")
    (x, y), corners = point, _box(box)
    return corners.is_proper() and corners.left <= x < corners.right and corners.top <= y < corners.bottom


def _box(numbers: Sequence[float]) -> Box:
    if len(numbers) != 4:
        raise ValueError(f"a box is [left, top, right, bottom], got {numbers!r}")
    return Box(*map(float, numbers))


def _hull(first: Box, second: Box) -> Box:
    lowest = map(min, first[:2], second[:2])
    return Box(*lowest, *map(max, first[2:], second[2:]))


def _shares_of_hull(first: Box, second: Box) -> tuple[float, float]:
    """Areas of what two proper boxes share and of what they cover together, over that of the smallest box around both.

    Shares, so that neither tiny nor huge boxes leave the range of floats.
    """
    hull = _hull(first, second)
    shared_width = min(first.right, second.right) - max(first.left, second.left)
    shared_height = min(first.bottom, second.bottom) - max(first.top, second.top)
    shared = max(0.0, shared_width / hull.width) * max(0.0, shared_height / hull.height)
    one, other = (box.width / hull.width * (box.height / hull.height) for box in (first, second))
    return shared, min(1.0, max(one, other, one + other - shared))
