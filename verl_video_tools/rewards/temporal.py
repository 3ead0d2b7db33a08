"""Overlap of time segments."""

from __future__ import annotations

import math
from collections.abc import Sequence


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
