"""95 % intervals of estimates. `python -m benchmarks.interval_coverage` measures how often they hold."""

from __future__ import annotations

from statistics import NormalDist

from verl_video_tools.evaluation.uncertainty.estimates import Estimate

Interval = tuple[float, float]

MIN_VIDEOS, MIN_EFFECTIVE_VIDEOS = 30, 10
"""With fewer there is no interval: the error of so few videos is not known well enough."""

LEVEL = 0.95


def is_enough(estimate: Estimate) -> bool:
    """Whether there are enough videos for an interval, none of which has the greater part of the items."""
    return estimate.num_videos >= MIN_VIDEOS and estimate.effective_videos >= MIN_EFFECTIVE_VIDEOS


def share_interval(estimate: Estimate) -> Interval | None:
    """Of a figure between 0 and 1; None with too few videos.

    Wilson's score interval, with the number of independent items that would have the same standard error, and
    Student's quantile for the effective number of videos. It stays between 0 and 1, and holds near both, where one of
    the same width to both sides does not.
    """
    if not is_enough(estimate):
        return None
    p, variance = estimate.value, estimate.standard_error**2
    # Without any scatter, as where all items are right, each video counts as one item.
    num_independent = p * (1 - p) / variance if variance > 0 else estimate.effective_videos
    t = quantile_of(estimate)
    shrinkage = t**2 / num_independent
    middle = (p + shrinkage / 2) / (1 + shrinkage)
    half = t / (1 + shrinkage) * ((p * (1 - p) + shrinkage / 4) / num_independent) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def plain_interval(estimate: Estimate) -> Interval | None:
    """Of any other figure, of the same width to both sides; None with too few videos."""
    if not is_enough(estimate):
        return None
    half = quantile_of(estimate) * estimate.standard_error
    return estimate.value - half, estimate.value + half


def quantile_of(estimate: Estimate) -> float:
    """Standard errors that an interval reaches to each side: Student's, for the effective number of videos."""
    return student_quantile((1 + LEVEL) / 2, estimate.effective_videos - 1)


def student_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Of Student's t distribution, right to 0.0002 from 9 degrees of freedom on and for probabilities up to 0.975.

    The expansion in powers of 1 / degrees of freedom (Abramowitz and Stegun, 26.7.5).
    """
    z, v = NormalDist().inv_cdf(probability), degrees_of_freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, start=1))
