"""Estimates are worth one less their relative error, as Video-R1 pays them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.numbers import estimate
from verl_video_tools.core.sample import check_question
from verl_video_tools.core.types import AnswerLabel, Sample, StopReason, Trajectory, Turn, VideoInfo
from verl_video_tools.grading.answers import answer_score, decided_by_rule, grade_answer
from verl_video_tools.grading.numbers import relative_accuracy
from verl_video_tools.methods import get_method

finite = st.floats(-1e9, 1e9).filter(lambda value: abs(value) > 1e-6)


NUMBERS = [
    ("3.5", 3.5),
    ("-3.5", -3.5),
    ("+2", 2.0),
    ("1,234.5", 1234.5),
    ("\u22127", -7.0),
    (".5", 0.5),
    ("2e3", 2000.0),
    ("about 3.4 metres.", 3.4),
    ("It is 12 m2", 12.0),
    ("12 m^2", 12.0),
    ("12.5 m^{2}", 12.5),
    ("\\boxed{12 \\text{ m}^2}", 12.0),
    ("10^3", None),
    ("5 %", 5.0),
    ("(7)", 7.0),
    ("$4", 4.0),
    ("12,34", None),
    ("1/2", None),
    ("0:34", None),
    ("3-4", None),
    ("3 to 4", None),
    ("3, 4", None),
    ("twelve", None),
    ("", None),
    ("1e999", None),
    ("1" * 201, None),
]


def test_the_only_number_of_a_text() -> None:
    assert [(text, value) for text, value in NUMBERS if estimate(text) != value] == []


@pytest.mark.parametrize(
    ("answer", "truth", "worth"),
    [
        ("10", "10", 1.0),
        ("10.0 m", "10", 1.0),
        ("9", "10", 0.9),
        ("11", "10", 0.9),
        ("2.5", "-2.5", 0.0),
        ("19", "10", 0.1),
        ("20", "10", 0.0),
        ("1000", "10", 0.0),
        ("none", "10", 0.0),
        (None, "10", 0.0),
        ("0", "0", 1.0),
        ("0.1", "0", 0.0),
    ],
)
def test_worth_is_one_less_the_relative_error(answer: str | None, truth: str, worth: float) -> None:
    assert relative_accuracy(answer, truth) == pytest.approx(worth)


@given(finite, finite)
def test_the_published_rule(answer: float, truth: float) -> None:
    """Video-R1: 1 - min(1, max(0, (|answer - truth| + 1e-9) / (|truth| + 1e-9)))."""
    published = 1 - min(1.0, max(0.0, (abs(answer - truth) + 1e-9) / (abs(truth) + 1e-9)))
    assert relative_accuracy(repr(answer), repr(truth)) == pytest.approx(published, abs=2e-3)
    assert relative_accuracy(repr(truth), repr(truth)) == 1.0
    assert math.isfinite(relative_accuracy(repr(answer), repr(truth)))


def sample(truth: str = "10") -> Sample:
    return Sample("How far is it, in metres?", truth, "video.mp4", "regression")


@pytest.mark.parametrize(
    ("answer", "label", "worth"),
    [
        ("10", AnswerLabel.CORRECT, 1.0),
        ("8", AnswerLabel.PARTIAL, 0.8),
        ("5", AnswerLabel.PARTIAL, 0.5),
        ("4", AnswerLabel.INCORRECT, 0.4),
        ("far", AnswerLabel.INCORRECT, 0.0),
        (None, AnswerLabel.INCORRECT, 0.0),
    ],
)
async def test_labels_and_worth(answer: str | None, label: AnswerLabel, worth: float) -> None:
    assert decided_by_rule(answer, sample()) is label
    assert await grade_answer(answer, sample(), None) is label
    assert await answer_score(answer, sample(), None) == pytest.approx(worth)


async def test_other_questions_are_worth_what_their_label_is() -> None:
    assert await answer_score("B", Sample("?", "B", "v.mp4", "mc"), None) == 1.0
    assert await answer_score("A", Sample("?", "B", "v.mp4", "mc"), None) == 0.0


def test_a_truth_that_is_no_number() -> None:
    with pytest.raises(UsageError, match="the truth of an estimate must be a number, got 'far'"):
        check_question(sample("far"), None)


@pytest.mark.parametrize(
    ("method", "answer", "accuracy"),
    [
        ("longvt", "8", 0.8),
        ("framemind", "8", 1.0),  # its accuracy is binary, from `CORRECT_FROM` on
        ("framemind", "4", 0.0),
        ("direct", "8", 0.0),
        ("direct", "10", 1.0),
        ("videozoomer", "8", 0.0),
    ],
)
async def test_methods_pay_a_part_only_where_they_do_so_otherwise(method: str, answer: str, accuracy: float) -> None:
    trajectory = Trajectory(method=method, question=sample().question)
    trajectory.video = VideoInfo(10.0, 100, 10.0, 64, 64)
    text = f"<think>so</think><answer>{answer}</answer>"
    trajectory.turns = [Turn(text=text, thought="so", answer=answer, well_formed=True, truncated=False)]
    trajectory.answer, trajectory.stop_reason = answer, StopReason.ANSWER
    config = get_method(method)
    reward = await config.score(trajectory, sample())
    assert reward["accuracy"] == pytest.approx(accuracy * config.accuracy_reward)
