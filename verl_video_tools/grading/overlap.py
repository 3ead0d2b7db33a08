"""Overlap of segments in time, and of boxes in a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verl_video_tools.core.regions import Box


def temporal_iou(first: Sequence[float], second: Sequence[float]) -> float:
    """Intersection over union of two segments `[start_seconds, end_seconds]`, in [0, 1].

    A segment that is reversed, empty (start equals end) or not finite overlaps nothing: 0.0.

    Raises:
        ValueError: a segment does not consist of two numbers.
    """
    for segment in (first, second):
        if len(segment) != 2:
            raise ValueError(f"a segment is [start_seconds, end_seconds], got {segment!r}")
    (first_start, first_end), (second_start, second_end) = first, second
    if not all(math.isfinite(bound) for bound in (*first, *second)):
        return 0.0
    if first_start >= first_end or second_start >= second_end:
        return 0.0
    intersection = min(first_end, second_end) - max(first_start, second_start)
    # The hull is the union wherever the segments meet, and one subtraction rounds less than a sum of three lengths.
    union = max(first_end, second_end) - min(first_start, second_start)
    return max(0.0, intersection / union)


def temporal_recall(segment: Sequence[float], truth: Sequence[float]) -> float:
    """Share of `truth` that `segment` covers, in [0, 1]; 0.0 if either is reversed, empty or not finite.

    Raises:
        ValueError: a segment does not consist of two numbers.
    """
    (start, end), (true_start, true_end) = segment, truth
    if not all(map(math.isfinite, (*segment, *truth))) or start >= end or true_start >= true_end:
        return 0.0
    return max(0.0, min(end, true_end) - max(start, true_start)) / (true_end - true_start)


def boundary_agreement(segment: Sequence[float], truth: Sequence[float], duration_seconds: float) -> float:
    """(1 - |start error| / duration) * (1 - |end error| / duration), each factor at least 0; in [0, 1].

    Raises:
        ValueError: a segment does not consist of two numbers, or the duration is not positive.
    """
    if not duration_seconds > 0.0:
        raise ValueError(f"duration_seconds must be above 0, got {duration_seconds}")
    (start, end), (true_start, true_end) = segment, truth
    errors = (abs(start - true_start), abs(end - true_end))
    return math.prod(max(0.0, 1.0 - error / duration_seconds) for error in errors)


# ---------------------------------------------------------------------------------------------------------------- boxes


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
