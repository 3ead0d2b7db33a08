"""What is told of a file of rollouts while it is filled."""

from __future__ import annotations

from typing import Any

from verl_video_tools.core.types import StopReason, Trajectory
from verl_video_tools.data.generate import GenerationSummary


def record(uid: str, acc: float, *flags: str) -> dict[str, Any]:
    trajectory = Trajectory(method="direct", question="", stop_reason=StopReason.ANSWER, flags=list(flags))
    return {"uid": uid, "session_id": 0, "reward": {"acc": acc}, "trajectory": trajectory}


def test_accuracy_is_that_of_rollouts_without_a_flag() -> None:
    summary = GenerationSummary()
    assert summary.progress_note == ""
    summary.add(record("a", 0.0, "aborted"))
    assert summary.progress_note == "1 flagged"
    summary.add(record("b", 1.0))
    summary.add(record("c", 0.0))
    assert summary.progress_note == "accuracy 0.500, 1 flagged"


def test_a_rollout_made_again_counts_once() -> None:
    summary = GenerationSummary()
    for again in (record("a", 0.0, "aborted"), record("a", 1.0), record("b", 1.0), record("b", 0.0)):
        summary.add(again)
    assert (summary.progress_note, len(summary)) == ("accuracy 0.500", 2)
