"""Intervals and tests of an evaluation's figures, with videos as the sampling unit.

Answers about one video tend to be right together, so a standard error over items is too small. Standard errors come
from a jackknife over videos. Equal items in equal order give equal figures. `python -m benchmarks.interval_coverage`
measures how often the intervals contain the true figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

Interval = tuple[float, float]

MIN_VIDEOS, MIN_EFFECTIVE_VIDEOS = 30, 10
"""With fewer there is no interval, because the standard error is too uncertain."""

_PERMUTATION_BATCHES, _BATCH_SIZE = 99, 101
_SEED = 0
_EQUAL = 1e-9
"""Sums of fractions differ in their last digits with their order."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of some items.

    Attributes:
        standard_error: in the figure's unit; NaN for items of one video.
        num_videos: the number of different videos.
        effective_videos: Kish's effective sample size, `n**2 / sum(n_v**2)` for n_v items of video v; at most
            `num_videos`.
    """

    value: float
    standard_error: float
    num_videos: int
    effective_videos: float

    @property
    def is_enough(self) -> bool:
        """Whether there are enough videos for an interval, also after weighting by their items."""
        return self.num_videos >= MIN_VIDEOS and self.effective_videos >= MIN_EFFECTIVE_VIDEOS


def mean_by_video(values: Sequence[float], videos: Sequence[str], groups: Sequence[str] | None = None) -> Estimate:
    """The mean of the values, or the mean of the groups' means; `videos` names the video of each value."""
    names, members = np.unique(np.asarray(videos), return_inverse=True)
    group_names, group_members = np.unique(np.asarray(groups or [""] * len(values)), return_inverse=True)
    sums, sizes = np.zeros((2, len(names), len(group_names)))
    np.add.at(sums, (members, group_members), np.asarray(values, dtype=np.float64))
    np.add.at(sizes, (members, group_members), 1)
    value = float((sums.sum(0) / sizes.sum(0)).mean())
    with np.errstate(invalid="ignore"):
        means_without = (sums.sum(0) - sums) / (sizes.sum(0) - sizes)  # of each group, without each video
    has_items = ~np.isnan(means_without)  # a group of one video is missing without it
    with np.errstate(invalid="ignore"):
        without = np.where(has_items, means_without, 0).sum(1) / has_items.sum(1)
    variance = (len(names) - 1) / len(names) * float(np.square(without - value).sum())
    per_video = sizes.sum(1)
    effective = float(per_video.sum() ** 2 / np.square(per_video).sum())
    return Estimate(value, variance**0.5, len(names), effective)


def share_interval(estimate: Estimate) -> Interval | None:
    """95 % interval of a figure between 0 and 1; None with too few videos.

    Wilson's score interval, with the number of independent items that would have the same standard error, and
    Student's quantile for the effective number of videos. It stays between 0 and 1 and holds near both, where a
    symmetric interval does not.
    """
    if not estimate.is_enough:
        return None
    p, variance = estimate.value, estimate.standard_error**2
    # Without any variance, such as when all items are right, each video counts as one item.
    num_independent = p * (1 - p) / variance if variance > 0 else estimate.effective_videos
    t = student_quantile(estimate.effective_videos - 1)
    shrinkage = t**2 / num_independent
    middle = (p + shrinkage / 2) / (1 + shrinkage)
    half = t / (1 + shrinkage) * ((p * (1 - p) + shrinkage / 4) / num_independent) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def student_quantile(degrees_of_freedom: float) -> float:
    """The 97.5 % quantile of Student's t distribution, with an error below 0.0002 for 9 or more degrees of freedom.

    The expansion in powers of 1 / degrees of freedom (Abramowitz and Stegun, 26.7.5).
    """
    z, v = NormalDist().inv_cdf(0.975), degrees_of_freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, start=1))


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of paired differences between two runs on the same items.

    Attributes:
        interval: 95 %; None with too few videos, or if all differences are equal.
        p_value: of the permutation test; None with too few videos.
    """

    value: float
    interval: Interval | None
    p_value: float | None


def paired_difference(differences: Sequence[float], videos: Sequence[str]) -> Difference:
    """The mean of the items' differences between two runs, with interval and test; `videos` names the items' videos."""
    estimate = mean_by_video(differences, videos)
    if not estimate.is_enough:
        return Difference(estimate.value, None, None)
    half = student_quantile(estimate.effective_videos - 1) * estimate.standard_error
    interval = (estimate.value - half, estimate.value + half) if half > 0 else None
    return Difference(estimate.value, interval, _permutation_p_value(differences, videos))


def _permutation_p_value(differences: Sequence[float], videos: Sequence[str]) -> float:
    """Two-sided permutation test that exchanges the two runs in whole videos: how often is the mean farther from 0?

    Half of the ties count (mid-p), because ties are frequent with few videos.
    """
    names, members = np.unique(np.asarray(videos), return_inverse=True)
    sums = np.bincount(members, weights=np.asarray(differences, dtype=np.float64), minlength=len(names))
    sums = sums[sums != 0]  # an exchange does not change a sum of 0
    if not len(sums):
        return 1.0
    generator = np.random.default_rng(_SEED)
    # In batches: 9,999 signs for each of thousands of videos would take gigabytes.
    batches = [(generator.integers(0, 2, (_BATCH_SIZE, len(sums))) * 2 - 1) @ sums for _ in range(_PERMUTATION_BATCHES)]
    farther = np.abs(np.concatenate(batches)) - abs(sums.sum())
    num_equal = np.count_nonzero(np.abs(farther) <= _EQUAL) + 1  # the observed runs
    return float((np.count_nonzero(farther > _EQUAL) + num_equal / 2) / (len(farther) + 1))
