"""Boxes over time: a thing's boxes at some times of a video, and how well others meet them.

A track is a sequence of `(seconds, box)`, in any order; `core.boxes` says what a box is.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from verl_video_tools.core.boxes import Box, box_iou

Track = Sequence[tuple[float, Sequence[float]]]
"""Times in seconds, each with the box at that time."""


def box_at(track: Track, seconds: float) -> Box | None:
    """The box of a track at a time, between two of its times in proportion; None before its first and after its last.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    return _box_at(_sorted(track), seconds)


def track_iou(predicted: Track, truth: Track, tolerance_seconds: float = 0.0) -> float:
    """Overlap in space and time, in [0, 1]: the IoU of boxes at the same time, summed, over all times of either track.

    This is vIoU of spatio-temporal grounding (Zhang et al. 2020, https://arxiv.org/abs/2001.06891): a time that only
    one of the two has counts as a miss, so neither more boxes than the truth's nor fewer are worth while. A box that is
    reversed, empty or not finite, or at a time that is not finite, is a miss, too. 0.0 where both are empty.

    Args:
        tolerance_seconds: times that differ by no more are the same; each is matched once, the nearest first.

    Raises:
        ValueError: a box does not consist of four numbers, or the tolerance is negative.
    """
    if not tolerance_seconds >= 0.0:
        raise ValueError(f"tolerance_seconds must be at least 0, got {tolerance_seconds}")
    ours, theirs = _sorted(predicted), _sorted(truth)
    true_times = [seconds for seconds, _ in theirs]
    pairs = []
    for number, (seconds, _) in enumerate(ours):
        first = bisect_left(true_times, seconds - tolerance_seconds)
        for other in range(first, bisect_right(true_times, seconds + tolerance_seconds)):
            pairs.append((abs(seconds - true_times[other]), number, other))
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for _, number, other in sorted(pairs):
        if number not in matched and other not in taken:
            matched[number] = other
            taken.add(other)
    num_times = len(predicted) + len(truth) - len(matched)
    overlap = math.fsum(box_iou(ours[number][1], theirs[other][1]) for number, other in matched.items())
    return overlap / num_times if num_times else 0.0


def mean_iou_on_track(predicted: Track, truth: Track) -> float:
    """Mean IoU of some boxes with a truth known at a few times, in [0, 1]; between them the truth moves evenly.

    For evidence at times of the policy's choice: how much of the truth is met does not count. A box before the truth's
    first time or after its last is a miss, as is one that is reversed, empty or not finite. 0.0 where nothing was
    predicted.

    Raises:
        ValueError: a box does not consist of four numbers.
    """
    known = _sorted(truth)
    found = ((box, _box_at(known, seconds)) for seconds, box in _sorted(predicted))
    overlaps = [0.0 if expected is None else box_iou(box, expected) for box, expected in found]
    return math.fsum(overlaps) / len(predicted) if overlaps else 0.0


def _box_at(known: Sequence[tuple[float, Box]], seconds: float) -> Box | None:
    after = bisect_right(known, seconds, key=lambda entry: entry[0])
    if after == 0:
        return None
    start, box = known[after - 1]
    if seconds == start:
        return box
    if after == len(known):
        return None
    end, following = known[after]
    share = (seconds - start) / (end - start)
    return Box(*(edge + share * (other - edge) for edge, other in zip(box, following, strict=True)))


def _sorted(track: Track) -> list[tuple[float, Box]]:
    """By time; entries at a time that is not finite are left out."""
    entries = []
    for seconds, box in track:
        if len(box) != 4:
            raise ValueError(f"a box is [left, top, right, bottom], got {box!r}")
        if math.isfinite(seconds):
            entries.append((float(seconds), Box(*map(float, box))))
    return sorted(entries, key=lambda entry: entry[0])
