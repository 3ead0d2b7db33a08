"""A box in a call: how it is read, which are refused, and how the model is told of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.regions import frame_edges
from verl_video_tools.core.types import Box, BoxUnit, PixelBox, Region
from verl_video_tools.methods.toolkit.arguments import finite_number

UNIT_IN_WORDS: Mapping[BoxUnit, str] = {
    "normalised": "as shares of the frame's width and height, from 0 to 1",
    "thousandths": "in thousandths of the frame's width and height, from 0 to 1000",
    "pixels": "in pixels of the video's frame",
}


def box_in_words(unit: BoxUnit) -> str:
    """What a box is, for the description of a parameter."""
    return f"[left, top, right, bottom] {UNIT_IN_WORDS[unit]}; the upper left corner is [0, 0]."


def region_argument(
    arguments: Mapping[str, Any], name: str, size: tuple[int, int], unit: BoxUnit, min_side_pixels: int = 1
) -> tuple[Region, PixelBox]:
    """A box ``[left, top, right, bottom]`` of the displayed frame: as it was named, and in whole pixels.

    Args:
        size: width and height of the frame in pixels.
        unit: what its numbers count.
        min_side_pixels: both sides must have so many pixels of the frame.

    Raises:
        CallRejected: `malformed_call` if it is not four finite numbers, `reversed_box`, `box_outside` or
            `box_too_small`; the message states what is allowed.
    """
    value = arguments.get(name)
    numbers = value if isinstance(value, list | tuple) and len(value) == 4 else ()
    edges = [edge for number in numbers if (edge := finite_number(number, read_text=False)) is not None]
    if len(edges) != 4:
        raise CallRejected(
            CallErrorCode.MALFORMED_CALL, f"{name} must be [left, top, right, bottom], four numbers, got {value!r:.80}"
        )
    box = Box(*edges)
    told = format_box(box)
    if box.right < box.left or box.bottom < box.top:
        raise CallRejected(
            CallErrorCode.REVERSED_BOX, f"{name} {told} ends before it starts; give [left, top, right, bottom]"
        )
    right, bottom = frame_edges(unit, *size)
    if min(box) < 0 or box.right > right or box.bottom > bottom:
        raise CallRejected(
            CallErrorCode.BOX_OUTSIDE, f"{name} {told} leaves the frame, which is {format_box((0, 0, right, bottom))}"
        )
    if not box.is_proper():
        raise CallRejected(CallErrorCode.BOX_TOO_SMALL, f"{name} {told} covers nothing of the frame")
    region = Region(box, unit)
    pixels = region.in_pixels(*size)
    if min(pixels.width, pixels.height) < min_side_pixels:
        least = [edge * min_side_pixels / side for edge, side in zip((right, bottom), size, strict=True)]
        raise CallRejected(
            CallErrorCode.BOX_TOO_SMALL,
            f"{name} {told} covers {pixels.width}x{pixels.height} pixels, and each side must have {min_side_pixels}: "
            f"make it at least {least[0]:.4g} wide and {least[1]:.4g} high",
        )
    return region, pixels


def format_box(box: Sequence[float]) -> str:
    """A box as a model reads it, with at most four significant digits behind the point: ``[0.25, 0, 0.5, 1]``."""
    return "[" + ", ".join(f"{edge:.6g}" for edge in box) + "]"
