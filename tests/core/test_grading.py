"""Which rule grades which question, and when a judge is asked."""

import asyncio
import threading
import time

import pytest

from verl_video_tools.core import grading
from verl_video_tools.core.errors import JudgeError, UsageError, VideoToolsError
from verl_video_tools.core.grading import check_question, decided_by_rule, grade_answer
from verl_video_tools.core.types import AnswerLabel, QuestionType, Sample
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


async def test_a_comparison_that_hangs_leaves_the_event_loop_free_and_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(grading, "grade_number", lambda answer, truth: go_on.wait(60))
    monkeypatch.setattr(grading, "NUMBER_DEADLINE_SECONDS", 0.2)
    try:
        grade = asyncio.create_task(grade_answer("13", sample("numeric", "12"), None))
        turns = 0
        while not grade.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert await grade is INCORRECT
    finally:
        go_on.set()
    assert turns >= 5
    assert "was not compared with '12' within 0.2 s" in caplog.text


async def test_what_a_comparison_waits_for_makes_no_right_answer_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import from a cold file system, for one."""
    monkeypatch.setattr(grading, "NUMBER_DEADLINE_SECONDS", 0.2)
    monkeypatch.setattr(grading, "prepare", lambda: time.sleep(0.5))
    assert await grade_answer("There are 12 cars.", sample("numeric", "12"), None) is CORRECT


async def test_a_comparison_that_never_begins_says_nothing_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(grading, "NUMBER_START_SECONDS", 0.1)
    monkeypatch.setattr(grading, "prepare", lambda: go_on.wait(60))
    try:
        with pytest.raises(VideoToolsError, match=r"no thread was free for 0\.1 s"):
            await grade_answer("12", sample("numeric", "12"), None)
    finally:
        go_on.set()


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
