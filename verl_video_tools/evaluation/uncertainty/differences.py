"""Paired differences: what two runs say of the same items, by the videos that these are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from verl_video_tools.evaluation.uncertainty.estimates import Estimate, mean_by_video, members_of
from verl_video_tools.evaluation.uncertainty.intervals import (
    Interval,
    is_enough,
    plain_interval,
    quantile_of,
)

POWER = 0.8
_NUM_PERMUTATIONS = 9999
_MOST_SIGNS = 1_000_000
"""Held at once, in 8 bytes each."""
_SEED = 0
_EQUAL = 1e-9
"""Sums of fractions differ in their last digits by their order alone."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of the paired differences.

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

    The test exchanges the two runs in whole videos at random: how often is the mean then farther from 0? Where it is as
    far, which is often so with few videos and whole numbers, half of the times count (mid-p).

    Args:
        differences: of each item's values in the two runs.
        videos: the video of each item; at least two.
    """
    estimate = mean_by_video(differences, videos)
    if not is_enough(estimate):
        return Difference(estimate, None, None)
    interval = plain_interval(estimate) if estimate.standard_error > 0 else None
    return Difference(estimate, interval, _permutation_p_value(differences, videos))


def least_shown_difference(estimate: Estimate) -> float | None:
    """The true difference that a test at 5 % finds in 80 % of such evaluations; None where none can be told.

    Args:
        estimate: of a difference, whose standard error is all that counts; where it is 0, nothing can be told.
    """
    if not is_enough(estimate) or estimate.standard_error == 0:
        return None
    return (quantile_of(estimate) + NormalDist().inv_cdf(POWER)) * estimate.standard_error


def _permutation_p_value(differences: Sequence[float], videos: Sequence[str]) -> float:
    members, _ = members_of(videos)
    sums = np.bincount(members, weights=np.asarray(differences, dtype=np.float64))
    sums = sums[sums != 0]  # an exchange leaves the others as they are
    if not len(sums):
        return 1.0
    generator, num_rows = np.random.default_rng(_SEED), max(1, _MOST_SIGNS // len(sums))
    permuted = np.empty(_NUM_PERMUTATIONS)
    for rows in np.split(permuted, range(num_rows, _NUM_PERMUTATIONS, num_rows)):  # views
        rows[:] = (generator.integers(0, 2, (len(rows), len(sums))) * 2 - 1) @ sums
    farther = np.abs(permuted) - abs(sums.sum())
    num_equal = np.count_nonzero(np.abs(farther) <= _EQUAL) + 1  # the runs as they are
    return float((np.count_nonzero(farther > _EQUAL) + num_equal / 2) / (_NUM_PERMUTATIONS + 1))
