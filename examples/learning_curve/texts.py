"""Shares and gains as tables write them: in per cent and percentage points, a range behind its mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def points(gain: float) -> str:
    return f"{100 * gain:+.1f}"


def interval(estimate: Mapping[str, float]) -> str:
    """Of a share."""
    return f"{percent(estimate['mean'])} ({100 * estimate['low']:.1f} to {100 * estimate['high']:.1f})"


def gain_interval(estimate: Mapping[str, float]) -> str:
    return f"{points(estimate['mean'])} ({points(estimate['low'])} to {points(estimate['high'])})"


def spread(shares: Sequence[float]) -> str:
    """Mean, lowest and highest; one share itself."""
    return interval(_ends(shares)) if len(shares) > 1 else percent(shares[0])


def gain_spread(gains: Sequence[float]) -> str:
    return gain_interval(_ends(gains)) if len(gains) > 1 else points(gains[0])


def count_spread(counts: Sequence[float]) -> str:
    """Mean, lowest and highest in whole numbers; the mean alone where all are equal."""
    mean, low, high = (f"{value:.0f}" for value in _ends(counts).values())
    return mean if low == high else f"{mean} ({low} to {high})"


def _ends(values: Sequence[float]) -> dict[str, float]:
    return {"mean": sum(values) / len(values), "low": min(values), "high": max(values)}


def thousands(tokens: float) -> str:
    return f"{tokens / 1000:.0f} k"
