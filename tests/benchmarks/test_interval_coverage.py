"""Intervals hold as often as they say; tests, too. The whole table is in docs/evaluation.md."""

from __future__ import annotations

import pytest

from benchmarks import interval_coverage
from benchmarks.interval_coverage import CASES, PAIRS, Case, pair_covers, share_covers

EVALUATIONS = 1500
SLACK = 0.015
"""Two standard errors of a share near 0.95 of so many evaluations, and a little."""


@pytest.fixture(autouse=True)
def few_bootstraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_coverage, "NUM_BOOTSTRAPS", 2)  # only the table shows the plain bootstrap


@pytest.mark.long
@pytest.mark.parametrize("num_videos", [30, 100, 300])
@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[6]], ids=lambda case: case.name)
def test_intervals_of_accuracies_hold(case: Case, num_videos: int) -> None:
    ours, _ = share_covers(case, num_videos, EVALUATIONS)
    assert 0.93 - SLACK <= ours <= 0.97 + SLACK


def test_intervals_of_differences_hold_and_their_test_is_right() -> None:
    _, gained, lost, sizes = PAIRS[0]
    held, significant = pair_covers(gained, lost, sizes, 100, 300)
    assert 0.92 <= held <= 0.98
    assert 0.02 <= significant <= 0.08
