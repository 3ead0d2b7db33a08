"""Growth of each quantity over the joined segments, and what it is taken for.

Growth is a slope over steps, common to all segments, with an interval that allows for autocorrelation.

Segment s has its own level, since every process is a new one:

    y_t = a_s + b x_t + e_t,    e_t = r e_(t-1) + u_t

Memory that is kept, or freed in bursts, makes the errors e of neighbouring steps alike, and the interval of ordinary
least squares much too short. So b is estimated by generalised least squares (Prais and Winsten): least squares on
y_t - r y_(t-1) and on the first value of each segment, weighted by sqrt(1 - r^2), with r from the residuals of an
ordinary fit. Its interval is that of least squares, with Student's t.

Two corrections of r: a fitted level and trend lower it by about (2 + 5 r) / n in segments of n samples. And where it
is closer to 1 than 2 / sqrt(n) it is taken for 1, so that increments are fitted: nobody can tell the two apart then,
and the mistake widens the interval (after Perron and Yabu, 2009). In simulations with r from 0 to 1 the interval of
95 % holds the truth in 92 to 99 % of cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np

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

MIN_SAMPLES = 50
"""Below which no interval is given: it would hold the truth too rarely."""
_NEAR_ONE = 1 - 1e-5

Sample = Mapping[str, Any]
"""As in `Segment.samples`."""


class Verdict(StrEnum):
    NONE = "no growth found"
    BELOW = "grows, below the bound"
    GROWS = "grows"
    OPEN = "too short to tell"


@dataclass(frozen=True)
class Slope:
    """Growth per step.

    Attributes:
        per_step: estimate.
        error: its standard error; infinite where there are too few samples.
        freedom: degrees of freedom of that.
    """

    per_step: float
    error: float
    freedom: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Lower and upper end."""
        if math.isinf(self.error):
            return -math.inf, math.inf
        margin = student_quantile((1 + confidence) / 2, self.freedom) * self.error
        return self.per_step - margin, self.per_step + margin


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


# --------------------------------------------------------------------------------------------------------- the slope


def common_slope(series: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Slope | None:
    """Slope over all segments, each a pair of steps and values; None where no segment has three samples."""
    segments = [
        (np.asarray(steps) - np.mean(steps), np.asarray(values) - values[0])  # exactly 0 where nothing changes
        for steps, values in series
        if len(set(steps)) >= 3
    ]
    if not segments:
        return None
    coefficients, _, _ = _least_squares(segments, 0.0)
    residuals = [
        values - level - coefficients[-1] * steps
        for level, (steps, values) in zip(coefficients, segments, strict=False)  # the last one is the slope
    ]
    coefficients, error, freedom = _least_squares(segments, _correlation(residuals))
    enough = freedom + len(segments) + 1 >= MIN_SAMPLES
    return Slope(float(coefficients[-1]), error if enough else math.inf, freedom)


def student_quantile(probability: float, freedom: float) -> float:
    """Of Student's t, by its expansion about the normal quantile (Abramowitz and Stegun, 26.7.5); freedom >= 3."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def _least_squares(segments: Sequence[tuple[np.ndarray, np.ndarray]], r: float) -> tuple[np.ndarray, float, int]:
    """Levels and slope for errors with this correlation, standard error of the slope, and degrees of freedom."""
    designs, targets = [], []
    for number, (steps, values) in enumerate(segments):
        design = np.zeros((len(steps), len(segments) + 1))
        design[:, number] = 1
        design[:, -1] = steps
        first = math.sqrt(1 - r * r)
        designs += [first * design[:1], design[1:] - r * design[:-1]]
        targets += [first * values[:1], values[1:] - r * values[:-1]]
    design, target = np.vstack(designs), np.concatenate(targets)
    coefficients = np.linalg.lstsq(design, target, rcond=None)[0]
    residuals = target - design @ coefficients
    freedom = len(target) - design.shape[1]
    covariance = np.linalg.inv(design.T @ design) * (residuals @ residuals) / max(freedom, 1)
    return coefficients, math.sqrt(covariance[-1, -1]), freedom


def _correlation(residuals: Sequence[np.ndarray]) -> float:
    """Of neighbouring errors, from 0 to almost 1."""
    length = sum(map(len, residuals)) / len(residuals)
    squares = sum(float(e @ e) for e in residuals)
    if squares == 0 or length <= 5:
        return 0.0
    measured = sum(float(e[1:] @ e[:-1]) for e in residuals) / squares
    corrected = (measured + 2 / length) / (1 - 5 / length)
    return _NEAR_ONE if corrected > 1 - 2 / math.sqrt(length) else max(corrected, 0.0)
