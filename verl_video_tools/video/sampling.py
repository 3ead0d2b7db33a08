"""Functions that choose frames or times. They work on numbers and need no video."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def linspace_indices(first: int, last: int, count: int) -> tuple[int, ...]:
    """`count` frame indices spread evenly over [first, last], both ends included, truncated to integers.

    The indices are sorted and distinct, so there are fewer than `count` if the range holds fewer frames. This is the
    rule of FrameThinker and VideoBrain: evenly spaced float64 positions, each truncated.

    Raises:
        ValueError: count < 1 or last < first.
    """
    if count < 1 or last < first:
        raise ValueError(f"need count >= 1 and last >= first, got count={count}, first={first}, last={last}")
    return tuple(np.unique(np.linspace(first, last, count).astype(np.int64)).tolist())


def uniform_seconds(start_seconds: float, end_seconds: float, count: int) -> tuple[float, ...]:
    """`count` times spread evenly over [start, end], both ends included; one time is the start.

    Raises:
        ValueError: count < 1 or end < start.
    """
    if count < 1 or not end_seconds >= start_seconds:
        raise ValueError(
            f"need count >= 1 and end >= start, got count={count}, start={start_seconds}, end={end_seconds}"
        )
    return tuple(np.linspace(start_seconds, end_seconds, count).tolist())


def fps_seconds(start_seconds: float, end_seconds: float, fps: float, max_frames: int) -> tuple[float, ...]:
    """Times start, start + 1/fps, ... below end: at least one, at most `max_frames`.

    Where the rate would give more than `max_frames`, that many times are spread evenly over the same half-open
    interval instead, so that the end of the interval is not lost.

    Raises:
        ValueError: fps <= 0, max_frames < 1 or end < start.
    """
    if not fps > 0 or max_frames < 1 or not end_seconds >= start_seconds:
        raise ValueError(
            "need fps > 0, max_frames >= 1 and end >= start, "
            f"got fps={fps}, max_frames={max_frames}, start={start_seconds}, end={end_seconds}"
        )
    length_seconds = end_seconds - start_seconds
    count = max(1, math.ceil(length_seconds * fps - 1e-9))  # 0.3 s at 10 fps is 3 frames, not 4 by float error
    if count > max_frames:
        return tuple(start_seconds + index * length_seconds / max_frames for index in range(max_frames))
    return tuple(start_seconds + index / fps for index in range(count))


def not_before(seconds: Sequence[float], end_seconds: float) -> tuple[float, ...]:
    """The same times a microsecond later, at most `end_seconds`.

    A time that was computed for the start of a frame may lie just before it by float error, where the frame before is
    still shown.
    """
    return tuple(min(time + 1e-6, end_seconds) for time in seconds)
