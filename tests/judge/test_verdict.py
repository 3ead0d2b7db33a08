"""How a judge's reply is read: every trap that published parsers fall into, and what we make of it."""

import pytest

from verl_video_tools.errors import JudgeError
from verl_video_tools.judge.verdict import read_verdict
from verl_video_tools.types import AnswerLabel

CORRECT, PARTIAL, INCORRECT = AnswerLabel.CORRECT, AnswerLabel.PARTIAL, AnswerLabel.INCORRECT


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"label": "correct"}', CORRECT),
        ('{"label": "partial"}', PARTIAL),
        ('{"label": "incorrect"}', INCORRECT),
        ('```json\n{"reason": "{same}", "label": "Correct."}\n```', CORRECT),
        ('Both name a dog.\n{"label": "Partially correct"}', PARTIAL),
        ('{"label": 0.5}', PARTIAL),
        ('{"label": "correct"} {"label": "correct"}', CORRECT),
        ('<think>{"label": "incorrect"}? No.</think>{"label": "correct"}', CORRECT),
        ("correct", CORRECT),
        ("**Incorrect**", INCORRECT),
        ("They agree.\nVerdict: correct", CORRECT),
        ("They agree.\r\n\r\n \t**Verdict** : correct\r\n", CORRECT),
        ("**Judgement:** partial", PARTIAL),
        ("Judgement: 0.5", PARTIAL),
        ("Judgement: 1", CORRECT),
        (" 1\n", CORRECT),
        ("1.0", CORRECT),
        ("Score: 1", CORRECT),
        ("score: 0", INCORRECT),
        ("**Score:** 1", CORRECT),
    ],
)
def test_readable(reply: str, expected: AnswerLabel) -> None:
    assert read_verdict(reply) is expected


@pytest.mark.timeout(20)
def test_long_replies_take_time_in_proportion_to_their_length() -> None:
    blank = "\n" * 200_000
    assert read_verdict(f"{blank}Verdict: correct{blank}") is CORRECT
    for filling in (blank, "\r\n" * 200_000, " " * 200_000, "* " * 200_000, "> \n" * 200_000):
        with pytest.raises(JudgeError, match="no readable label"):
            read_verdict(f"Hm.{filling}I would rather not say.")


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "0.51",
        "Judgement: 0.51",
        "1 - same",
        "Judgement: 1 - same",
        "Score: 10",
        "Score: 1/1",
        "Score: one",
        "The answer is not correct.",
        "It could be correct or incorrect.",
        '{"label": "correct"} {"label": "incorrect"}',
        "Verdict: correct\nVerdict: incorrect",
        '{"label": "correct" or "incorrect"}',
        '{"label": true}',
        '{"label": null}',
        '{"label": ["correct"]}',
        '{"verdict": "correct"}',
        '<think>The label is correct, {"label": "correct"}',
        "{" * 5000,
    ],
)
def test_unreadable_is_a_failure_and_never_a_wrong_answer(reply: str) -> None:
    with pytest.raises(JudgeError, match="no readable label"):
        read_verdict(reply)
