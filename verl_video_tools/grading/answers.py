"""Grade an answer by the rule for its type of question, or by a judge if no rule decides.

| question | graded by |
|---|---|
| `mc` | the option that it names (`choices`) |
| `numeric` | the number that it states (`numbers`) |
| `regression` | the relative error of the number that it states (`numbers`) |
| `segment` | the overlap of the segment that it names, at least a half (`segments`) |
| `open` | equality with the truth except for case, spacing and outer punctuation; otherwise the judge |

An answer to a closed question in none of these forms is *unread*. It is wrong in training, and `vvt eval` gives it to
the judge if there is one.
"""

from __future__ import annotations

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.numbers import estimate
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.services import AnswerLabel, Judge
from verl_video_tools.core.truths import plain_text
from verl_video_tools.grading.choices import chosen_option, grade_multiple_choice
from verl_video_tools.grading.numbers import grade_number, relative_accuracy, stated_number
from verl_video_tools.grading.segments import grade_segment, read_segment


def is_unread(answer: str | None, sample: Sample) -> bool:
    """Whether an answer lacks the option, number or segment that its question asks for, or any words for an open
    question."""
    if answer is None or not answer.strip():
        return True
    match sample.question_type:
        case "mc":
            return chosen_option(answer, sample.options or None) is None
        case "numeric":
            return stated_number(answer) is None and not grade_number(answer, sample.ground_truth)
        case "regression":
            return estimate(answer) is None
        case "segment":
            return read_segment(answer) is None
    return False


def decided_by_rule(answer: str | None, sample: Sample, *, judge_unread: bool = False) -> AnswerLabel | None:
    """The label of an answer by rule; None if the judge has to decide.

    An estimate is partly right up to a relative error of a half.

    Args:
        judge_unread: the judge decides on unread answers to closed questions, which are otherwise wrong.
    """
    if answer is None or not answer.strip():
        return AnswerLabel.INCORRECT
    if judge_unread and is_unread(answer, sample):
        return None
    truth = sample.ground_truth
    match sample.question_type:
        case "mc":
            is_correct = grade_multiple_choice(answer, truth, sample.options or None)
        case "numeric":
            is_correct = grade_number(answer, truth)
        case "segment":
            is_correct = grade_segment(answer, truth)
        case "regression":
            score = relative_accuracy(answer, truth)
            return next(label for label in AnswerLabel if score >= label.score)  # the best one comes first
        case "open":
            if plain_text(answer) != plain_text(truth):
                return None
            is_correct = True
    return AnswerLabel.CORRECT if is_correct else AnswerLabel.INCORRECT


async def grade_answer(
    answer: str | None, sample: Sample, judge: Judge | None, *, judge_unread: bool = False
) -> AnswerLabel:
    """How an answer compares with the sample's truth.

    Args:
        sample: a question that `core.sample.check_question` accepts. `Method.score` checks it.
        judge_unread: the judge, if there is one, also decides on unread answers to closed questions.

    Raises:
        UsageError: a judge has to decide and there is none.
        JudgeError: the judge gave no verdict.
    """
    label = decided_by_rule(answer, sample, judge_unread=judge_unread and judge is not None)
    if label is not None:
        return label
    assert answer is not None  # a missing answer is wrong by rule
    if judge is None:
        raise UsageError(f"an open question (truth {sample.ground_truth!r}) needs a judge and none is configured")
    return await judge.judge(sample.question, _truth_with_option(sample), answer)


def _truth_with_option(sample: Sample) -> str:
    """The truth for a judge: a letter has the option's text."""
    number = ord(sample.ground_truth[0]) - ord("A") if sample.question_type == "mc" else -1
    if 0 <= number < len(sample.options):
        return f"{sample.ground_truth}. {sample.options[number]}"
    return sample.ground_truth


async def answer_score(answer: str | None, sample: Sample, judge: Judge | None) -> float:
    """The score of an answer, from 0 to 1, for methods with partial credit: 1 minus the relative error of an estimate,
    otherwise the score of the label (`AnswerLabel.score`).

    Args:
        sample: as `grade_answer` takes it.

    Raises:
        UsageError: a judge has to decide and there is none.
        JudgeError: the judge gave no verdict.
    """
    label = await grade_answer(answer, sample, judge)
    return relative_accuracy(answer, sample.ground_truth) if sample.question_type == "regression" else label.score
