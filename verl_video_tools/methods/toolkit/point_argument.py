"""A point in a call: how it is read, which are refused, and the part of the frame around it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.regions import frame_edges
from verl_video_tools.core.types import BoxUnit, PixelBox
from verl_video_tools.methods.toolkit.arguments import finite_number
from verl_video_tools.methods.toolkit.box_argument import UNIT_IN_WORDS, format_box

Point = tuple[float, float]
"""x and y in pixels of the displayed frame, from its upper left corner; not rounded."""


def point_in_words(unit: BoxUnit) -> str:
    """What a point is, for the description of a parameter."""
    return f"[x, y] {UNIT_IN_WORDS[unit]}; the upper left corner is [0, 0]."


def point_argument(arguments: Mapping[str, Any], name: str, size: tuple[int, int], unit: BoxUnit) -> Point:
    """A point ``[x, y]`` of the displayed frame, in its pixels.

    Args:
        size: width and height of the frame in pixels.
        unit: what its numbers count.

    Raises:
        CallRejected: `malformed_call` if it is not two finite numbers, `point_outside`; the message states what is
            allowed.
    """
    value = arguments.get(name)
    numbers = value if isinstance(value, list | tuple) and len(value) == 2 else ()
    found = [number for each in numbers if (number := finite_number(each, read_text=False)) is not None]
    if len(found) != 2:
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"{name} must be [x, y], two numbers, got {value!r:.80}")
    x, y = found
    right, bottom = frame_edges(unit, *size)
    if not (0 <= x <= right and 0 <= y <= bottom):
        raise CallRejected(
            CallErrorCode.POINT_OUTSIDE,
            f"{name} {format_box(found)} is outside the frame, which is {format_box((0, 0, right, bottom))}",
        )
    return x / right * size[0], y / bottom * size[1]


def window_around(point: Point, size: tuple[int, int], share: float, min_side_pixels: int = 1) -> PixelBox:
    """The part of a frame around a point: the point is in its middle, or as near as the frame's edges allow.

    Args:
        point: inside the frame, in its pixels.
        size: width and height of the frame in pixels.
        share: of each side of the frame, above 0 and at most 1.
        min_side_pixels: both sides have so many pixels at least, as far as the frame has them.
    """
    (left, right), (top, bottom) = (
        _stretch(place, side, share, min_side_pixels) for place, side in zip(point, size, strict=True)
    )
    return PixelBox(left, top, right, bottom)


def _stretch(place: float, side: int, share: float, least: int) -> tuple[int, int]:
    length = min(side, max(math.ceil(side * share), least))
    first = min(max(math.floor(place) - length // 2, 0), side - length)
    return first, first + length
