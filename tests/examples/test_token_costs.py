"""Tokens of recorded rollouts, by counts worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.learning_curve.token_costs import DROPPED_GROUPS, Tokens, tokens_of, training_tokens
from tests.recorded_run import refused, rollout, write_run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import CallRecord, FrameRecord, Trajectory
from verl_video_tools.evaluation.items import visual_tokens

FACTOR = 28


def line(group: str, *calls: CallRecord, generated: int | None = 10) -> dict[str, Any]:
    """Its initial frames are two frames of 2 x 1 tokens."""
    made = rollout(group, 1.0, calls=calls) | {"num_generated_tokens": generated, "agent_name": "longvt"}
    made["trajectory"]["initial_frames"] = [shown(0, 56, 28), shown(1, 56, 28)]
    return made


def shown(index: int, width: int, height: int) -> dict[str, Any]:
    return Trajectory("x", "?", initial_frames=[FrameRecord(index, index / 5, width, height)]).to_dict()[
        "initial_frames"
    ][0]


def look(*sizes: tuple[int, int]) -> CallRecord:
    frames = [FrameRecord(index, index / 5, *size) for index, size in enumerate(sizes)]
    return CallRecord("crop_video", {}, ok=True, frames=frames)


def read(made: dict[str, Any]) -> dict[str, Any]:
    return made | {"trajectory": Trajectory.from_dict(made["trajectory"])}


def test_initial_frames_and_those_of_calls_count_and_refused_calls_do_not() -> None:
    made = read(line("a", look((56, 56), (56, 56)), refused("crop_video", "bad_range"), look((28, 28))))
    assert tokens_of(made, FACTOR) == Tokens(generated=10, visual=2 + 2 + 4 + 4 + 1)
    assert visual_tokens(made["trajectory"], FACTOR, frames_per_patch=2) == 2 + 4 + 4 + 1


@pytest.mark.parametrize(("sampled", "counted"), [(14, 14), (None, 10)])
def test_a_turn_that_is_not_trained_on_counts(sampled: int | None, counted: int) -> None:
    """Records of rollouts that never reached the engine have no count of their own."""
    assert tokens_of(read(line("a") | {"num_sampled_tokens": sampled}), FACTOR) == Tokens(counted, visual=4)


def test_tokens_of_training_add_up_to_each_step(tmp_path: Path) -> None:
    steps = {1: [line("a"), line("a", look((56, 56)))], 2: [line("b", generated=7)]}
    write_run(tmp_path, steps, {0: [line("held out", generated=1000)]})
    assert training_tokens(tmp_path, FACTOR) == {
        0: Tokens(),
        1: Tokens(20, 4 + 8),
        2: Tokens(27, 4 + 8 + 4),
    }


def test_groups_that_dynamic_sampling_left_out_cost_as_much_as_the_others(tmp_path: Path) -> None:
    """Two groups trained, of 30 tokens together; one was dropped, and one was left over."""
    lines = [line("a"), line("b"), line("b")]
    logged = {"rollout/count": 3.0, DROPPED_GROUPS[0]: 1.0, DROPPED_GROUPS[1]: 1.0}
    write_run(tmp_path, {1: lines, 2: lines}, log={1: {"rollout/count": 3.0}, 2: logged})
    totals = training_tokens(tmp_path, FACTOR)
    assert (totals[1], totals[2]) == (Tokens(30, 12), Tokens(90, 36))


def test_of_a_step_that_was_trained_again_the_last_time_counts(tmp_path: Path) -> None:
    write_run(tmp_path, {1: [line("a")]}, log={1: {"rollout/count": 1.0, DROPPED_GROUPS[0]: 3.0}})
    (tmp_path / "metrics.jsonl").rename(tmp_path / "metrics_1.jsonl")
    write_run(tmp_path, {1: [line("a")]}, log={1: {"rollout/count": 1.0}})
    (tmp_path / "metrics.jsonl").rename(tmp_path / "metrics_2.jsonl")
    write_run(tmp_path, {1: [line("a")]}, log={1: {"val-core/acc": 1.0}})  # a start that only measured
    (tmp_path / "metrics.jsonl").rename(tmp_path / "metrics_3.jsonl")
    assert training_tokens(tmp_path, FACTOR)[1] == Tokens(10, 4)


def test_a_missing_step_or_count_is_an_error(tmp_path: Path) -> None:
    write_run(tmp_path, {1: [line("a")], 3: [line("a")]})
    with pytest.raises(UsageError, match=r"step_000003.jsonl: the records of step 2 are missing"):
        training_tokens(tmp_path, FACTOR)
    with pytest.raises(UsageError, match="'longvt' without num_generated_tokens"):
        tokens_of(read(line("a", generated=None)), FACTOR)
