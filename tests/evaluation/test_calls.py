"""Call rates by tool and class of question."""

from __future__ import annotations

from typing import Any

from verl_video_tools.core.types import CallRecord, Trajectory, Turn
from verl_video_tools.evaluation.results import call_figures


def rollout(*calls: tuple[str, dict[str, Any], bool]) -> Trajectory:
    turns = [Turn("", calls=[CallRecord(name, arguments, ok=ok)]) for name, arguments, ok in calls]
    return Trajectory("made", "?", turns=[*turns, Turn("A")])


def test_rates_by_tool_and_class() -> None:
    zooms = [("zoom", {"fps": fps}, True) for fps in (0.5, 1, 1.5, 2, 8, 30)]
    rollouts = [
        rollout(*zooms, ("search", {"query": "?"}, True)),
        rollout(("zoom", {"fps": 4}, False)),  # refused: it has not looked
        rollout(("search", {"fps": "2"}, True), ("search", {"fps": 0}, True)),
        rollout(),
    ]
    assert call_figures(rollouts, ["active", "active", "direct", None]) == {
        "share": 0.5,
        "by_tool": {"search": 0.5, "zoom": 0.25},
        "by_class": {"active": 0.5, "direct": 1.0},
    }


def test_without_calls_there_are_no_rates() -> None:
    assert call_figures([rollout(), rollout()], ["active", None]) == {}
    assert call_figures([rollout(("search", {}, True))], [None]) == {"share": 1.0, "by_tool": {"search": 1.0}}
