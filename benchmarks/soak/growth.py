"""Growth of each quantity over the joined segments, and what it is taken for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.soak.fit import Slope, common_slope
from benchmarks.soak.segments import Segment

WARM_UP_STEPS = 200
"""Of each segment, left out: caches fill, libraries are loaded, and heaps reach the size of the largest batch. That of
the training process was met after up to 190 steps, a hundred MB at a time."""
ALL = "all processes"
PROCESS_MEASURES = ("memory_mb", "handles", "threads")
BOUNDS = {"memory_mb": 0.1, "handles": 0.02, "threads": 0.02, "folder": 0.1}
"""Growth per step (MB, or a number) that is taken for none: 1,000 steps of it are 100 MB, or 20 handles."""

SURE = 0.999
"""Confidence with which growth is told. Sixty quantities are asked: at 0.95, two or three of them would seem to grow or
shrink in every soak, and where a heap takes another 64 MB twice in an hour, they do."""

_KINDS_OF_ALL = 5
"""Times the bound, for all processes together."""

Sample = Mapping[str, Any]
"""As in `Segment.samples`."""


class Verdict(StrEnum):
    NONE = "no growth found"
    BELOW = "grows, below the bound"
    GROWS = "grows"
    OPEN = "too short to tell"


@dataclass(frozen=True)
class Growth:
    """Of one quantity.

    Attributes:
        of: kind of process, or name of a folder.
        measure: what of it: a key of `BOUNDS`.
        mean: its value after warm-up.
        slope: per step; None where no segment is long enough.
    """

    of: str
    measure: str
    mean: float
    slope: Slope | None

    @property
    def verdict(self) -> Verdict:
        return verdict(self.slope, BOUNDS[self.measure] * (_KINDS_OF_ALL if self.of == ALL else 1))


def verdict(slope: Slope | None, bound: float) -> Verdict:
    """What an interval says about growth of more than `bound` a step."""
    if slope is None:
        return Verdict.OPEN
    low, high = slope.interval()
    if low > 0 and slope.per_step <= bound:
        return Verdict.BELOW
    if slope.interval(SURE)[0] > 0:
        return Verdict.GROWS
    return Verdict.NONE if high <= bound else Verdict.OPEN


def all_growth(segments: Sequence[Segment]) -> list[Growth]:
    """Of all processes together, of every kind of them, and of the folders."""
    found = [
        _growth(segments, kind, measure, of_processes(kind, measure))
        for kind in [ALL, *all_kinds(segments)]
        for measure in PROCESS_MEASURES
    ]
    found.append(_growth(segments, "mapped shared memory", "folder", of_processes(ALL, "shared_mb")))
    found += [_growth(segments, folder, "folder", of_folder(folder)) for folder in all_folders(segments)]
    return found


def all_kinds(segments: Sequence[Segment]) -> list[str]:
    """Of processes, in order of appearance."""
    return list(dict.fromkeys(kind for segment in segments for s in segment.samples for kind in s["processes"]))


def all_folders(segments: Sequence[Segment]) -> list[str]:
    return list(dict.fromkeys(folder for segment in segments for s in segment.samples for folder in s["folders"]))


def of_processes(kind: str, measure: str) -> Callable[[Sample], float]:
    """Function: what a sample tells of the processes of a kind, or of `ALL`."""

    def value(sample: Sample) -> float:
        processes = sample["processes"]
        kinds = processes.values() if kind == ALL else [processes.get(kind, {})]
        return float(sum(usage.get(measure, 0.0) for usage in kinds))

    return value


def of_folder(folder: str) -> Callable[[Sample], float]:
    return lambda sample: float(sample["folders"].get(folder, 0.0))


def _growth(segments: Sequence[Segment], of: str, measure: str, value: Callable[[Sample], float]) -> Growth:
    joined = []
    for segment in segments:
        samples = [s for s in segment.samples if s["step"] >= segment.samples[0]["step"] + WARM_UP_STEPS]
        joined.append(([float(s["step"]) for s in samples], [value(s) for s in samples]))
    values = [each for _, values in joined for each in values]
    return Growth(of, measure, sum(values) / len(values) if values else 0.0, common_slope(joined))
