"""Means and paired intervals of held-out rollouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.learning_curve.held_out import Estimate, Gain, Outcome, mean_gain, mean_of, read_outcomes
from tests.recorded_run import looked, refused, rollout, write_run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import CallRecord


def outcomes(right: np.ndarray, per_video: int = 1) -> dict[int, Outcome]:
    return {
        number: Outcome(1.5 * value, float(value), 1, None, {"video_path": f"{number // per_video}.mp4"})
        for number, value in enumerate(right)
    }


@pytest.mark.slow
def test_the_interval_holds_the_mean_and_shrinks_with_more_videos() -> None:
    rng = np.random.default_rng(0)
    few, many = (mean_of(outcomes(rng.random(count) < 0.3)) for count in (40, 4000))
    for estimate in (few, many):
        assert estimate.low < estimate.mean < estimate.high
    assert many.high - many.low < 0.25 * (few.high - few.low)
    assert many.mean == pytest.approx(0.3, abs=0.03)
    assert many.high - many.low == pytest.approx(2 * 1.96 * np.sqrt(0.3 * 0.7 / 4000), rel=0.1)


def test_questions_about_one_video_count_together() -> None:
    right = np.repeat(np.random.default_rng(1).random(50) < 0.5, 4)
    alone, together = mean_of(outcomes(right)), mean_of(outcomes(right, per_video=4))
    assert alone.mean == together.mean
    assert together.high - together.low == pytest.approx(2 * (alone.high - alone.low), rel=0.1)


def test_gains_are_paired() -> None:
    """Accuracies that vary far more than their difference: only pairing sees it."""
    rng = np.random.default_rng(2)
    before = rng.random(300) < 0.5
    after = before | (rng.random(300) < 0.08)
    gain = mean_gain(outcomes(before), outcomes(after))
    assert gain.low > 0.0 and gain.mean == pytest.approx(after.mean() - before.mean())
    first, second = mean_of(outcomes(before)), mean_of(outcomes(after))
    assert first.high > second.low
    assert mean_gain(outcomes(before), outcomes(after), "score").mean == pytest.approx(1.5 * gain.mean)


def test_different_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="3 and 2, of which 2 are the same"):
        mean_gain(outcomes(np.ones(3)), outcomes(np.ones(2)))
    with pytest.raises(ValueError, match="no outcome"):
        mean_of({})


def test_shares_are_told_in_per_cent_and_gains_in_points() -> None:
    assert str(Estimate(0.738, 0.701, 0.775)) == "73.8% (70.1% to 77.5%)"
    assert str(Gain(0.297, 0.238, 0.355)) == "+29.7 points (+23.8 to +35.5)"
    assert str(mean_of(outcomes(np.ones(3)))) == "100.0% (100.0% to 100.0%)"
    assert str(mean_gain(outcomes(np.ones(3)), outcomes(np.zeros(3)))) == "-100.0 points (-100.0 to -100.0)"


def test_outcomes_are_read_by_row(tmp_path: Path) -> None:
    line = rollout("v", 1.5, calls=[looked("crop_video", 4), refused("crop_video", "turn_limit")])
    other = rollout("w", 0.0, method="direct") | {"agent_name": "direct", "extra_info": {"index": 7}}
    line |= {"agent_name": "longvt", "extra_info": {"index": 7, "video_path": "v.mp4"}}
    path = write_run(tmp_path / "r", {}, {1: [line, other]}) / "trajectories" / "val_step_000001.jsonl"
    assert read_outcomes(path, "longvt") == {
        7: Outcome(1.5, 1.0, 1, pytest.approx(3 / 5), {"index": 7, "video_path": "v.mp4"})
    }
    with pytest.raises(
        UsageError, match=r"val_step_000001\.jsonl: no rollout of 'videozoomer' but of direct, longvt; "
    ):
        read_outcomes(path, "videozoomer")


def test_looks_are_measured_by_what_they_showed(tmp_path: Path) -> None:
    fact = CallRecord("get_frame_number", {}, ok=True, result={"frame_number": 3})
    calls = {0: [], 1: [fact], 2: [fact, looked("choose_frames", 1)], 3: [looked("crop", 4), looked("crop", 6)]}
    lines = [
        rollout("v", 0.0, calls=made) | {"agent_name": "longvt", "extra_info": {"index": index, "video_path": "v.mp4"}}
        for index, made in calls.items()
    ]
    path = write_run(tmp_path / "r", {}, {1: lines}) / "trajectories" / "val_step_000001.jsonl"
    found = {index: outcome.seconds_per_look for index, outcome in read_outcomes(path, "longvt").items()}
    assert found == {0: None, 1: None, 2: 0.0, 3: pytest.approx((3 / 5 + 5 / 5) / 2)}


def test_two_rollouts_of_one_index_are_refused(tmp_path: Path) -> None:
    """Of two data sets that each count from 0, say, or of `val_kwargs.n=2`: one would have replaced the other."""
    line = rollout("v", 1.0) | {"agent_name": "longvt", "extra_info": {"index": 7, "video_path": "v.mp4"}}
    path = write_run(tmp_path / "r", {}, {1: [line, line]}) / "trajectories" / "val_step_000001.jsonl"
    with pytest.raises(UsageError, match=r"val_step_000001\.jsonl: two rollouts of 'longvt' on rows of index 7"):
        read_outcomes(path, "longvt")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"val_step_000060\.jsonl: no such file .*let the run go on to that step"):
        read_outcomes(tmp_path / "val_step_000060.jsonl", "longvt")
