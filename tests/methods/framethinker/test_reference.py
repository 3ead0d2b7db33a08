"""The published, text-based scoring: what it accepts, including what never ran."""

import pytest

from tests.turns.framethinker import answer, turn
from verl_video_tools.methods.framethinker.grammar import read_transcript

OBSERVATION = "frame 101: <image>\nframe 115: <image>"


def choose(start: int, end: int, thought: str = "") -> str:
    return turn(thought or f"between {start} and {end}", f"choose frames between {start} and {end}") + OBSERVATION


def get(time: str, frame_number: int) -> str:
    return turn("when", f"get frame number at time {time}") + f"Frame number at time {time} is: {frame_number}."


ANSWER = answer("B")


def found(transcript: str) -> tuple[bool, str | None, bool, bool]:
    findings = read_transcript(transcript, num_video_frames=3000)
    return findings.consistent, findings.answer, findings.chose_frames, bool(findings.times)


CONSISTENT = [
    (ANSWER, False, False),
    (choose(100, 200) + ANSWER, True, False),
    (choose(100, 200) + choose(101, 200) + ANSWER, True, False),
    (choose(0, 3000) + ANSWER, True, False),
    (choose(100, 200, "100 to 200 near 00:34") + ANSWER, True, False),
    (get("0:34", 815) + choose(700, 900) + ANSWER, True, True),
    (get("0:10", 240) + get("0:34", 815) + choose(700, 900) + ANSWER, True, True),
    (get("0:00", 0) + choose(0, 100) + ANSWER, True, False),
    ("<action>output answer: B</action><think>done</think>", False, False),
    # one turn that never waited for frames, and one that makes up the reply
    (turn("100 and 200", "choose frames between 100 and 200") + ANSWER, True, False),
    (get("0:34", 815) + turn("700 and 900", "choose frames between 700 and 900") + ANSWER, True, True),
    (turn("100 and 109", "choose frames between 100 and 109") + ANSWER, True, False),  # gap 9, also on long videos
    ("chatter " + ANSWER + " chatter", False, False),
    # numbers without bound: the environment takes the end of the video for one beyond it
    (choose(100, 10**20) + ANSWER, True, False),
    (choose(100, 200, "from 0000000000000000000000000100 to 200") + ANSWER, True, False),
]


def test_consistent() -> None:
    for transcript, chose, found_number in CONSISTENT:
        assert found(transcript) == (True, "B", chose, found_number)


INCONSISTENT = [
    "",
    choose(100, 200),
    "<action>output answer: B</action>",
    turn("done", "output answer B"),
    turn("done", "output answer:"),
    choose(100, 200, "200 then 100") + ANSWER,
    choose(100, 200, "100 to 200, 8 frames") + ANSWER,
    choose(100, 200, "nothing") + ANSWER,
    choose(100, 200) + choose(100, 200) + ANSWER,
    choose(100, 200) + choose(101, 199) + ANSWER,
    choose(0, 2999) + ANSWER,
    choose(100, 108) + ANSWER,
    get("0:34", 815) + ANSWER,
    get("0:34", 815) + choose(565, 645) + ANSWER,
    get("0:34", 815) + choose(700, 900) + get("0:34", 815) + choose(800, 900) + ANSWER,
    turn("when", "get frame number at time 0:34") + choose(700, 900) + ANSWER,  # no reply
    get("1234:56", 815) + choose(700, 900) + ANSWER,
    "</action>no reply<think>" + "</think>" + get("0:34", 815) + choose(700, 900) + ANSWER,
    turn("9 and " + "9" * 5000, "choose frames between 9 and " + "9" * 5000) + ANSWER,
    get("0:3", 815) + choose(700, 900) + ANSWER,
    turn("100 and 200", "now choose frames between 100 and 200") + ANSWER,
    turn("so", "look again") + ANSWER,
    "<think>100 and 200</think><action>choose frames between 100 and 200</action><action>output answer: B</action>",
]


def test_inconsistent() -> None:
    for transcript in INCONSISTENT:
        assert found(transcript)[0] is False


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("output answer: B.", "B."),
        ("output answer: b", "b"),
        ("output answer: B. The dog", "B."),
        ("output answer:\nB", "B"),
    ],
)
def test_the_answer_is_one_word(action: str, answer: str) -> None:
    assert found(turn("done", action))[:2] == (True, answer)
