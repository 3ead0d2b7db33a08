"""Grade an answer by the rule for its type of question, and by a judge where no rule decides."""

from __future__ import annotations

from verl_video_tools.errors import UsageError
from verl_video_tools.rewards.choices import grade_multiple_choice
from verl_video_tools.types import AnswerLabel, Judge, Sample


def check_question(sample: Sample, judge: Judge | None) -> None:
    """Say, before or after a rollout, that its answer could not be graded.

    Raises:
        UsageError: the question is open and there is no judge.
    """
    if sample.question_type == "open" and judge is None:
        raise UsageError(
            f"an open question (truth {sample.ground_truth!r}) needs a judge and none is configured; "
            "configure one, or give a multiple-choice or numeric question"
        )


async def grade_answer(answer: str | None, sample: Sample, judge: Judge | None) -> AnswerLabel:
    """How an answer compares with the sample's truth.

    Raises:
        UsageError: the question is open and there is no judge.
        JudgeError: the judge gave no verdict.
    """
    check_question(sample, judge)
    if answer is None or not answer.strip():
        return AnswerLabel.INCORRECT
    if sample.question_type == "mc":
        is_correct = grade_multiple_choice(answer, sample.ground_truth, sample.options or None)
    elif sample.question_type == "numeric":
        is_correct = answer.strip() == sample.ground_truth.strip()
    else:
        assert judge is not None
        return await judge.judge(sample.question, sample.ground_truth, answer)
    return AnswerLabel.CORRECT if is_correct else AnswerLabel.INCORRECT
