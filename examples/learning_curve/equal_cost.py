"""Accuracy at a cost of training: between measurements, and over several runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from examples.learning_curve.claims.verdict import over_seeds
from examples.learning_curve.held_out import Estimate

Cost = Literal["generated_tokens", "visual_tokens"]
COSTS: tuple[Cost, ...] = ("generated_tokens", "visual_tokens")
Measurement = Mapping[str, Any]
"""Of `measured.cost_curve`."""


def accuracy_at(measurements: Sequence[Measurement], cost: Cost, budget: float) -> Estimate:
    """Accuracy of a run when its training had cost so much: mean and ends of the interval, each interpolated linearly
    between the two measurements around it.

    Raises:
        ValueError: the run was not measured before and after that cost, or costs do not rise.
    """
    costs = [measured[cost] for measured in measurements]
    if any(after <= before for before, after in pairwise(costs)):
        raise ValueError(f"{cost} of measurements must rise, got {costs}")
    if not costs or not costs[0] <= budget <= costs[-1]:
        raise ValueError(f"{budget} {cost} are not between the first measurement and the last, which stand at {costs}")
    place = max(1, bisect_left(costs, budget)) if len(costs) > 1 else 0
    before, after = measurements[max(0, place - 1)], measurements[place]
    share = (budget - before[cost]) / (after[cost] - before[cost]) if place else 0.0
    return Estimate(
        *((1 - share) * before["accuracy"][name] + share * after["accuracy"][name] for name in ("mean", "low", "high"))
    )


def largest_common(curves: Iterable[Sequence[Measurement]], cost: Cost) -> float:
    """The largest cost that all runs have reached."""
    return float(min(measurements[-1][cost] for measurements in curves))


def mean_of_runs(estimates: Sequence[Estimate]) -> Estimate:
    """Mean over runs of one method. The interval is Student's over them, within 0 and 1: seeds differ by more than
    their held-out videos explain, and each has videos of its own. That of a single run is over its videos alone."""
    if len(estimates) == 1:
        return estimates[0]
    seeds = over_seeds([each.mean for each in estimates])
    return Estimate(seeds.mean, max(0.0, seeds.low), min(1.0, seeds.high))
