"""Grade an answer by the rule for its type of question, and by a judge where no rule decides.

| question | graded by |
|---|---|
| `mc` | the option that it names (`choices`) |
| `numeric` | the number that it states (`numbers`) |
| `regression` | how near the number is that it states (`regression`) |
| `segment` | the segment that it names: right from an overlap of a half on (`segments`) |
| `open` | equality with the truth up to case, spacing and outer punctuation; else the judge |
"""

from __future__ import annotations

import asyncio
import logging

from verl_video_tools.core.choices import chosen_option, grade_multiple_choice, plain_text
from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.numbers import grade_number, is_number, prepare
from verl_video_tools.core.regression import estimate, relative_accuracy
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.segments import grade_segment, read_segment, segment_of
from verl_video_tools.core.services import AnswerLabel, Judge
from verl_video_tools.core.truths import canonical_number, option_letter

logger = logging.getLogger(__name__)

NUMBER_DEADLINE_SECONDS = 10.0
"""`numbers` hands nothing to math-verify that is known to compute for long; this holds for what is not known."""
NUMBER_START_SECONDS = 60.0
"""Until a comparison begins: those before it may be many, and math-verify has to be imported."""


def check_question(sample: Sample, judge: object | None) -> None:
    """Say, before or after a rollout, that its answer could not be graded.

    Args:
        judge: the judge, or, where none will be asked, the options of the one that there is.

    Raises:
        UsageError: the question is open and there is no judge, numeric or an estimate and its truth no number, of type
            segment and its truth none, or multiple choice and its truth none of the options.
    """
    if sample.question_type == "open" and judge is None:
        raise UsageError(
            f"an open question (truth {sample.ground_truth!r}) needs a judge and none is configured; "
            "configure one (video_tools.judge.base_url of a run, --judge-base-url of commands), or give a "
            "multiple-choice or numeric question"
        )
    if sample.question_type == "numeric" and not _states_number(sample.ground_truth):
        raise UsageError(
            f"the truth of a numeric question must be a number, got {sample.ground_truth!r}; "
            "make the question open and configure a judge"
        )
    if sample.question_type == "regression" and estimate(sample.ground_truth) is None:
        raise UsageError(
            f"the truth of an estimate must be a number, got {sample.ground_truth!r}; "
            "make the question open and configure a judge"
        )
    if sample.question_type == "segment" and segment_of(sample.ground_truth) is None:
        raise UsageError(
            f"the truth of a question of type segment must be [start, end] in seconds, got {sample.ground_truth!r}"
        )
    if sample.question_type == "mc" and option_letter(sample.ground_truth, sample.options) is None:
        raise UsageError(
            f"the truth of a multiple-choice question must be the letter or the text of an option, got "
            f"{sample.ground_truth!r} for options {list(sample.options)!r:.300}"
        )


def _states_number(truth: str) -> bool:
    # math-verify takes milliseconds, which the check of a whole data set need not pay for every plain number.
    return canonical_number(truth) is not None or is_number(truth)


def decided_by_rule(answer: str | None, sample: Sample) -> AnswerLabel | None:
    """The label of an answer that needs no judge; None for one that does.

    An estimate is partly right up to a relative error of a half.
    """
    if answer is None or not answer.strip():
        return AnswerLabel.INCORRECT
    if sample.question_type == "regression":
        score = relative_accuracy(answer, sample.ground_truth)
        graded = (label for label in AnswerLabel if score >= label.score)  # the best one comes first
        return next(graded)
    if sample.question_type == "mc":
        is_correct = grade_multiple_choice(answer, sample.ground_truth, sample.options or None)
    elif sample.question_type == "numeric":
        is_correct = grade_number(answer, sample.ground_truth)
    elif sample.question_type == "segment":
        is_correct = grade_segment(answer, sample.ground_truth)
    elif plain_text(answer) == plain_text(sample.ground_truth):
        is_correct = True
    else:
        return None
    return AnswerLabel.CORRECT if is_correct else AnswerLabel.INCORRECT


def is_readable(answer: str | None, sample: Sample) -> bool:
    """Whether an answer, right or wrong, gives what its type of question asks for: one option, number or segment, or
    any words where the question is open."""
    if answer is None or not answer.strip():
        return False
    if sample.question_type == "mc":
        return chosen_option(answer, sample.options or None) is not None
    if sample.question_type == "numeric":
        return _states_number(answer)
    if sample.question_type == "regression":
        return estimate(answer) is not None
    return sample.question_type == "open" or read_segment(answer) is not None


async def grade_answer(answer: str | None, sample: Sample, judge: Judge | None) -> AnswerLabel:
    """How an answer compares with the sample's truth.

    Numbers are compared beside the event loop, on which a reward worker scores all its rollouts, and for at most
    `NUMBER_DEADLINE_SECONDS`; an answer that takes longer is wrong. What a comparison waits for before does not count.

    Args:
        sample: a question that can be graded, as `check_question` says; `Method.score` has asked it.

    Raises:
        UsageError: a judge has to decide and there is none.
        JudgeError: the judge gave no verdict.
        VideoToolsError: the comparison of a number has not begun after `NUMBER_START_SECONDS`.
    """
    if sample.question_type == "numeric":
        return await _grade_number(answer, sample)
    label = decided_by_rule(answer, sample)
    if label is not None:
        return label
    assert answer is not None  # no answer is wrong by rule
    if judge is None:
        raise UsageError(f"an open question (truth {sample.ground_truth!r}) needs a judge and none is configured")
    return await judge.judge(sample.question, sample.ground_truth, answer)


async def answer_score(answer: str | None, sample: Sample, judge: Judge | None) -> float:
    """The score of an answer, from 0 to 1, for methods that pay for a part: of an estimate one less its relative error,
    else that of its label (`AnswerLabel.score`).

    Args:
        sample: as `grade_answer` takes it.

    Raises:
        UsageError: a judge has to decide and there is none.
        JudgeError: the judge gave no verdict.
    """
    label = await grade_answer(answer, sample, judge)
    return relative_accuracy(answer, sample.ground_truth) if sample.question_type == "regression" else label.score


async def _grade_number(answer: str | None, sample: Sample) -> AnswerLabel:
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def compare() -> AnswerLabel | None:
        try:
            prepare()
        finally:
            loop.call_soon_threadsafe(begun.set)
        return decided_by_rule(answer, sample)

    comparison = asyncio.ensure_future(asyncio.to_thread(compare))
    try:
        await asyncio.wait_for(begun.wait(), NUMBER_START_SECONDS)
    except TimeoutError:  # which says nothing of the answer
        comparison.cancel()
        raise VideoToolsError(
            f"no thread was free for {NUMBER_START_SECONDS:g} s to compare the answer {answer!r:.200} with a number"
        ) from None
    try:
        label = await asyncio.wait_for(comparison, NUMBER_DEADLINE_SECONDS)
    except TimeoutError:
        logger.warning(
            "the answer %.200r was not compared with %.80r within %g s and counts as wrong",
            answer,
            sample.ground_truth,
            NUMBER_DEADLINE_SECONDS,
        )
        return AnswerLabel.INCORRECT
    assert label is not None  # a rule decides on every number
    return label
