"""Growth as a slope: its interval has to hold the truth as often as it says, also where errors are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.soak.growth import Slope, common_slope, student_quantile

Segment = tuple[list[float], list[float]]


def autoregressive(rng: np.random.Generator, length: int, correlation: float) -> np.ndarray:
    """Stationary, of variance 1; a random walk where the correlation is 1."""
    if correlation == 1:
        return np.cumsum(rng.normal(size=length))
    values = np.empty(length)
    values[0] = rng.normal()
    for i in range(1, length):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * rng.normal()
    return values


def soaked(rng: np.random.Generator, slope: float, correlation: float, length: int, num_segments: int) -> list[Segment]:
    segments = []
    for number in range(num_segments):
        steps = np.arange(length) + number * length
        level = rng.uniform(100, 1000)  # new processes
        values = level + slope * (steps - steps[0]) + autoregressive(rng, length, correlation)
        segments.append(([float(step) for step in steps], [float(value) for value in values]))
    return segments


def holds(slope: Slope, truth: float) -> bool:
    low, high = slope.interval()
    return low <= truth <= high


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 1.0])
def test_the_interval_holds_the_truth(correlation: float) -> None:
    rng = np.random.default_rng(7)
    slopes = [common_slope(soaked(rng, 0.05, correlation, 100, 2)) for _ in range(200)]
    held = [slope is not None and holds(slope, 0.05) for slope in slopes]
    assert np.mean(held) >= 0.9


def test_the_interval_is_no_wider_than_independent_errors_make_it() -> None:
    rng = np.random.default_rng(7)
    widths = []
    for _ in range(50):
        slope = common_slope(soaked(rng, 0.0, 0.0, 150, 2))
        assert slope is not None
        low, high = slope.interval()
        widths.append(high - low)
    spread = 2 * (150**3 - 150) / 12
    assert np.mean(widths) == pytest.approx(2 * 1.96 / math.sqrt(spread), rel=0.1)


def test_a_level_of_its_own_for_every_segment() -> None:
    steps = list(range(60))
    falling_levels = [(steps, [900 + 2 * step for step in steps]), ([60, 61, 62], [100, 102, 104])]
    slope = common_slope(falling_levels)
    assert slope is not None and (slope.per_step, *slope.interval()) == pytest.approx((2, 2, 2))


def test_what_never_changes_does_not_grow() -> None:
    slope = common_slope([(list(range(60)), [0.1] * 60)])
    assert slope is not None and (slope.per_step, *slope.interval()) == (0, 0, 0)


def test_a_single_jump_is_no_certain_growth() -> None:
    slope = common_slope([(list(range(60)), [100.0] * 30 + [110.0] * 30)])
    assert slope is not None and holds(slope, 0)


def test_too_few_samples_give_no_interval() -> None:
    slope = common_slope([(list(range(20)), list(range(20)))])
    assert slope is not None and slope.interval() == (-math.inf, math.inf)
    assert common_slope([([1, 2], [5.0, 6.0]), ([], [])]) is None


@pytest.mark.parametrize(("freedom", "quantile"), [(3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)])
def test_quantiles_of_student(freedom: float, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=0.01)
