"""Whether runs bear a claim out: the rule that was fixed before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from examples.learning_curve.held_out import Estimate

Verdict = Literal["supports", "contradicts", "undecided"]

_T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5 % quantiles of Student's distribution, by degrees of freedom."""
MAX_SEEDS = max(_T_975) + 1


@dataclass(frozen=True)
class Interval(Estimate):
    """Mean difference over seeds and its 95 % interval; as text, of shares in percentage points."""

    def __str__(self) -> str:
        mean, low, high = (f"{100 * value:+.1f}" for value in (self.mean, self.low, self.high))
        return mean if math.isinf(self.high) else f"{mean} ({low} to {high})"


def over_seeds(differences: Sequence[float]) -> Interval:
    """The interval of Student's distribution over seeds.

    A seed has videos, cold start and order of questions of its own, so that its difference, a mean over its held-out
    questions, holds what chance adds in both: seed and videos. One seed gives an interval without ends.

    Raises:
        ValueError: no difference, or more than `MAX_SEEDS`.
    """
    if not 1 <= len(differences) <= MAX_SEEDS:
        raise ValueError(f"differences of 1 to {MAX_SEEDS} seeds, got {len(differences)}")
    mean = float(np.mean(differences))
    if len(differences) == 1:
        return Interval(mean, -math.inf, math.inf)
    half = _T_975[len(differences) - 1] * float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def decide(differences: Sequence[float], least: float, *, bound: float = 0.0) -> Verdict:
    """The rule.

    `supports`: the interval lies above `bound`, and the mean is at least `least`. `contradicts`: the interval lies
    below `least`. Else `undecided`; no differences bear both out.

    Args:
        differences: of the seeds, in the claim's direction.
        least: the smallest difference that would bear the claim out.
        bound: 0; below 0 for a claim that something does no harm, the greatest harm that does not count.
    """
    interval = over_seeds(differences)
    if interval.low > bound and interval.mean >= least:
        return "supports"
    return "contradicts" if interval.high < least else "undecided"
