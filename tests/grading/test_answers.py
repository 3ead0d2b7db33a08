"""Which rule grades which question, and when a judge is asked."""

import pytest

from verl_video_tools.core.errors import JudgeError, UsageError
from verl_video_tools.core.sample import check_question
from verl_video_tools.core.types import AnswerLabel, QuestionType, Sample
from verl_video_tools.grading.answers import decided_by_rule, grade_answer, is_unread
from verl_video_tools.services.config import JudgeConfig

CORRECT, PARTIAL, INCORRECT = AnswerLabel.CORRECT, AnswerLabel.PARTIAL, AnswerLabel.INCORRECT
OPTIONS = ("Cook", "Sing", "Visit the EU", "Visit the U.S.")


def sample(question_type: QuestionType, truth: str, options: tuple[str, ...] = ()) -> Sample:
    return Sample("What next?", truth, "video.mp4", question_type, options)


class OneVerdict:
    """A judge that remembers what it was asked."""

    def __init__(self, verdict: AnswerLabel | None) -> None:
        self.verdict = verdict
        self.asked: list[tuple[str, str, str]] = []

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        self.asked.append((question, truth, answer))
        if self.verdict is None:
            raise JudgeError("silent")
        return self.verdict


ANSWERS = [
    ("D", CORRECT),
    ("d", CORRECT),
    ("(D)", CORRECT),
    ("[D]", CORRECT),
    ("D.", CORRECT),
    ("D)", CORRECT),
    ("D: Visit the U.S.", CORRECT),
    ("D. Visit the U.S.", CORRECT),
    ("Visit the U.S.", CORRECT),
    ("visit the U.S", CORRECT),
    ("The answer is D.", CORRECT),
    (r"\boxed{D}", CORRECT),
    ("option D", CORRECT),
    ("C", INCORRECT),
    ("C or D", INCORRECT),
    ("E", INCORRECT),
    ("U.S.", INCORRECT),
    ("", INCORRECT),
    (None, INCORRECT),
]


async def test_multiple_choice_is_never_judged() -> None:
    for answer, expected in ANSWERS:
        judge = OneVerdict(PARTIAL)
        assert await grade_answer(answer, sample("mc", "D", OPTIONS), judge) is expected, answer
        assert judge.asked == []


@pytest.mark.parametrize(("answer", "expected"), [("12.0", CORRECT), ("13", INCORRECT), ("many", INCORRECT)])
async def test_numbers_are_never_judged(answer: str, expected: AnswerLabel) -> None:
    judge = OneVerdict(PARTIAL)
    assert await grade_answer(answer, sample("numeric", "12"), judge) is expected
    assert judge.asked == []


UNREAD = [
    (sample("mc", "D", OPTIONS), "C or D", "D. Visit the U.S."),
    (sample("mc", "D"), "I cannot see it.", "D"),
    (sample("numeric", "12"), "a dozen", "12"),
    (sample("segment", "[2.0, 7.0]"), "at the end", "[2.0, 7.0]"),
    (sample("regression", "12"), "far", "12"),
]


async def test_unread_answers_are_wrong_or_for_the_judge() -> None:
    for question, answer, truth in UNREAD:
        judge = OneVerdict(CORRECT)
        assert is_unread(answer, question)
        assert await grade_answer(answer, question, judge) is INCORRECT
        assert await grade_answer(answer, question, None, judge_unread=True) is INCORRECT
        assert judge.asked == []
        assert await grade_answer(answer, question, judge, judge_unread=True) is CORRECT
        assert judge.asked == [("What next?", truth, answer)]


async def test_an_answer_that_is_read_is_not_judged_again() -> None:
    for question, answer in ((sample("mc", "D", OPTIONS), "C"), (sample("numeric", "12"), "13")):
        judge = OneVerdict(CORRECT)
        assert not is_unread(answer, question)
        assert await grade_answer(answer, question, judge, judge_unread=True) is INCORRECT
        assert await grade_answer(" ", question, judge, judge_unread=True) is INCORRECT
        assert judge.asked == []


@pytest.mark.parametrize("answer", ["a dog", "A  dog.", '"a dog"'])
async def test_an_open_answer_that_equals_the_truth_is_not_judged(answer: str) -> None:
    judge = OneVerdict(INCORRECT)
    assert await grade_answer(answer, sample("open", "A dog"), judge) is CORRECT
    assert judge.asked == []


@pytest.mark.parametrize("answer", ["", " \n", None])
async def test_an_empty_answer_is_not_judged(answer: str | None) -> None:
    judge = OneVerdict(CORRECT)
    assert await grade_answer(answer, sample("open", "a dog"), judge) is INCORRECT
    assert judge.asked == []


@pytest.mark.parametrize("verdict", list(AnswerLabel))
async def test_other_open_answers_are_judged(verdict: AnswerLabel) -> None:
    judge = OneVerdict(verdict)
    assert decided_by_rule("some dog", sample("open", "a dog")) is None
    assert await grade_answer("some dog", sample("open", "a dog"), judge) is verdict
    assert judge.asked == [("What next?", "a dog", "some dog")]


async def test_a_silent_judge_is_no_wrong_answer() -> None:
    with pytest.raises(JudgeError):
        await grade_answer("some dog", sample("open", "a dog"), OneVerdict(None))


def test_questions_that_cannot_be_graded() -> None:
    with pytest.raises(UsageError, match="needs a judge"):
        check_question(sample("open", "a dog"), None)
    check_question(sample("open", "a dog"), JudgeConfig())
    check_question(sample("numeric", "12"), None)
    with pytest.raises(UsageError, match="must be a number, got 'a dozen'"):
        check_question(sample("numeric", "a dozen"), None)
    check_question(sample("mc", "B"), None)


@pytest.mark.parametrize(
    ("truth", "options"), [("a red scarf", ()), ("E", ("a dog", "a cat")), ("a horse", ("a dog", "a cat")), ("", ())]
)
def test_a_truth_that_no_option_has_is_told_before_the_rollout(truth: str, options: tuple[str, ...]) -> None:
    """Else every answer would be wrong, or only those that name something would raise."""
    with pytest.raises(UsageError, match="must be the letter or the text of an option, got"):
        check_question(Sample("?", truth, "video.mp4", "mc", options), None)


@pytest.mark.parametrize("truth", ["B", "b.", "a cat", "(B) a cat"])
def test_a_truth_that_names_an_option(truth: str) -> None:
    named = Sample("?", truth, "video.mp4", "mc", ("a dog", "a cat"))
    check_question(named, None)
    assert [decided_by_rule(answer, named) for answer in ("B", "a cat", "A")] == [CORRECT, CORRECT, INCORRECT]
