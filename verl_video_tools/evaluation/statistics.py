"""By how much a figure may be chance, where several items share a video: the videos are the sample, not the items.

Items about one video tend to be right together, so that an error counted by items is too small. Standard errors come
from leaving out one video at a time (the jackknife by cluster). The same items in the same order give the same figures
in every run. `python -m benchmarks.interval_coverage` measures how often the intervals hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")
Interval = tuple[float, float]

MIN_VIDEOS, MIN_EFFECTIVE_VIDEOS = 30, 10
"""With fewer there is no interval: the error of so few videos is not known well enough."""

_MOST_BLOCKS = 100
"""A figure that only its own function knows is computed anew for so many blocks of videos at most."""
_PERMUTATION_BATCHES, _BATCH_SIZE = 99, 101
_SEED = 0
_EQUAL = 1e-9
"""Sums of fractions differ in their last digits by their order alone."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of some items.

    Attributes:
        standard_error: in the figure's unit.
        num_videos: that the items are about.
        effective_videos: the number of videos with equally many items that would say as much, `n**2 / sum(n_v**2)`
            for n_v items of video v (Kish); at most `num_videos`.
    """

    value: float
    standard_error: float
    num_videos: int
    effective_videos: float

    @property
    def is_enough(self) -> bool:
        """Whether there are enough videos for an interval, none of which has the greater part of the items."""
        return self.num_videos >= MIN_VIDEOS and self.effective_videos >= MIN_EFFECTIVE_VIDEOS


def mean_by_video(values: Sequence[float], videos: Sequence[str]) -> Estimate:
    """The mean of all values; `videos` names the video of each, and there are at least two."""
    members, sizes = _members_of(videos)
    sums = np.bincount(members, weights=np.asarray(values, dtype=np.float64))
    total, num_items = sums.sum(), sizes.sum()
    return _estimate(total / num_items, (total - sums) / (num_items - sizes), sizes)


def figures_by_video(
    items: Sequence[Item], videos: Sequence[str], figures: Callable[[Sequence[Item]], Mapping[str, float]]
) -> dict[str, Estimate]:
    """Any figures of the items, such as means of groups' means; `videos` names the video of each, at least two.

    Args:
        figures: of any items. Called once for all and once without each video; from 100 videos on, without each of
            100 blocks of them. One that is missing there has no known error (NaN).
    """
    members, sizes = _members_of(videos)
    num_blocks = min(len(sizes), _MOST_BLOCKS)
    # Shuffled, as the order of a benchmark's videos may have a rhythm of its own.
    blocks = (np.random.default_rng(_SEED).permutation(len(sizes)) % num_blocks)[members]
    whole = figures(items)
    without = [
        figures([item for item, own in zip(items, blocks, strict=True) if own != block]) for block in range(num_blocks)
    ]
    return {
        name: _estimate(value, np.array([each.get(name, np.nan) for each in without]), sizes)
        for name, value in whole.items()
    }


def share_interval(estimate: Estimate) -> Interval | None:
    """95 % interval of a figure between 0 and 1; None with too few videos.

    Wilson's score interval, with the number of independent items that would have the same standard error, and
    Student's quantile for the effective number of videos. It stays between 0 and 1, and holds near both, where one of
    the same width to both sides does not.
    """
    if not estimate.is_enough:
        return None
    p, variance = estimate.value, estimate.standard_error**2
    # Without any scatter, as where all items are right, each video counts as one item.
    num_independent = p * (1 - p) / variance if variance > 0 else estimate.effective_videos
    t = student_quantile(estimate.effective_videos - 1)
    shrinkage = t**2 / num_independent
    middle = (p + shrinkage / 2) / (1 + shrinkage)
    half = t / (1 + shrinkage) * ((p * (1 - p) + shrinkage / 4) / num_independent) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def plain_interval(estimate: Estimate) -> Interval | None:
    """95 % interval of any other figure, of the same width to both sides; None with too few videos."""
    if not estimate.is_enough:
        return None
    half = student_quantile(estimate.effective_videos - 1) * estimate.standard_error
    return estimate.value - half, estimate.value + half


def student_quantile(degrees_of_freedom: float) -> float:
    """The 97.5 % quantile of Student's t distribution, right to 0.0002 from 9 degrees of freedom on.

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
    """Mean of paired differences: what two runs say of the same items.

    Attributes:
        estimate: of the mean.
        interval: 95 %; None with too few videos, or without any scatter, from which no error can be told.
        p_value: of the test by permutation; None with too few videos.
    """

    estimate: Estimate
    interval: Interval | None
    p_value: float | None


def paired_difference(differences: Sequence[float], videos: Sequence[str]) -> Difference:
    """The mean difference, with interval and test.

    Args:
        differences: of each item's values in the two runs.
        videos: the video of each item; at least two.
    """
    estimate = mean_by_video(differences, videos)
    if not estimate.is_enough:
        return Difference(estimate, None, None)
    interval = plain_interval(estimate) if estimate.standard_error > 0 else None
    return Difference(estimate, interval, _permutation_p_value(differences, videos))


def _permutation_p_value(differences: Sequence[float], videos: Sequence[str]) -> float:
    """Two-sided, by exchanging the two runs in whole videos at random: how often is the mean then farther from 0?

    Where it is as far, which is often so with few videos and whole numbers, half of the times count (mid-p).
    """
    members, _ = _members_of(videos)
    sums = np.bincount(members, weights=np.asarray(differences, dtype=np.float64))
    sums = sums[sums != 0]  # an exchange leaves the others as they are
    if not len(sums):
        return 1.0
    generator = np.random.default_rng(_SEED)
    batches = [(generator.integers(0, 2, (_BATCH_SIZE, len(sums))) * 2 - 1) @ sums for _ in range(_PERMUTATION_BATCHES)]
    farther = np.abs(np.concatenate(batches)) - abs(sums.sum())
    num_equal = np.count_nonzero(np.abs(farther) <= _EQUAL) + 1  # the runs as they are
    return float((np.count_nonzero(farther > _EQUAL) + num_equal / 2) / (len(farther) + 1))


def _members_of(videos: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of each item's video, in order of appearance, and the number of items of each video."""
    numbers: dict[str, int] = {}
    members = np.array([numbers.setdefault(video, len(numbers)) for video in videos], dtype=np.int64)
    return members, np.bincount(members)


def _estimate(value: float, without: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> Estimate:
    """`without` holds the figure without each block of videos, `sizes` the number of items of each video."""
    num_blocks = len(without)
    variance = (num_blocks - 1) / num_blocks * float(np.square(without - value).sum())
    effective = float(sizes.sum()) ** 2 / float(np.square(sizes).sum())
    return Estimate(float(value), variance**0.5, len(sizes), effective)
