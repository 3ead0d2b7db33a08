"""FrameThinker under scripted policies: every acceptance case that needs no tokens, strict and as published.

The tables are documentation: a case names what the policy writes, what each mode pays, and how the rollout ends. J with
a number names one of the acceptance cases that the project started from.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.methods.framethinker.scripted import ANSWER, QUESTION, TIMED_QUESTION, VIDEOS, WRONG
from tests.turns.framethinker import choose, get, turn
from tests.videos.files import MakeVideo
from verl_video_tools.replay import replay


@dataclass
class Case:
    """One scripted rollout. Scores are exact up to float error; `None` for the reference means: as strict."""

    name: str
    turns: list[str]
    strict: float
    ccv: float = 1.0
    stop: str = "answer"
    reference: float | None = None
    reference_ccv: float | None = None
    reference_stop: str | None = None
    question: str = QUESTION
    errors: list[str] = field(default_factory=list)
    """Codes of refused calls in strict mode."""


AT_100_S = [  # T = 3000 frames at 30 per second
    Case("direct answer", [ANSWER], 1.0),
    Case("direct wrong answer", [WRONG], 0.0),
    Case("zoom", [choose(100, 200), ANSWER], 1.02),
    Case("zoom, wrong", [choose(100, 200), WRONG], 0.0),
    Case("numbers reversed in the thought", [choose(100, 200, "200 then 100"), ANSWER], 0.0, ccv=0),
    Case("a number after the pair", [choose(100, 200, "100 to 200, 8 frames"), ANSWER], 0.0, ccv=0),
    Case("a time after the pair", [choose(100, 200, "100 to 200 near 00:34"), ANSWER], 1.02),
    Case("thousands separators", [choose(1400, 1500, "1,400 and 1,500"), ANSWER], 0.0, ccv=0),
    Case("thought without numbers", [choose(100, 200, "look closer"), ANSWER], 0.0, ccv=0),
    Case("the same segment twice", [choose(100, 200), choose(100, 200), ANSWER], 0.0, ccv=0),
    Case("nearly the same segment", [choose(100, 200), choose(101, 200), ANSWER], 1.02),
    Case("the frames inside a seen segment", [choose(100, 200), choose(101, 199), ANSWER], 0.0, ccv=0),
    Case("the whole video", [choose(0, 2999), ANSWER], 0.0, ccv=0),
    Case("the whole video, end exclusive", [choose(0, 3000), ANSWER], 1.02),
    Case("frame number 0 earns no time bonus", [get("0:00"), choose(0, 100), ANSWER], 1.02, question=TIMED_QUESTION),
    Case("answer with a full stop", [turn("done", "output answer: B.")], 0.0),
    Case("small letter", [turn("done", "output answer: b")], 0.0),
    Case("letter and text", [turn("done", "output answer: B. The dog")], 0.0),
    Case("no colon", [turn("done", "output answer B")], 0.0, ccv=0, stop="invalid_action", errors=["malformed_call"]),
    Case(
        "two actions in one turn",
        [turn("100 and 200", "choose frames between 100 and 200") + "<action>output answer: B</action>"],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        errors=["multiple_calls"],
    ),
    Case(
        "four digits of minutes",
        [get("1234:56"), choose(100, 200), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["malformed_call"],
    ),
    Case(
        "one digit of seconds",
        [get("0:3"), choose(50, 200), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["malformed_call"],
    ),
    Case("beyond the end", [choose(3000, 5000)], 0.0, ccv=0, stop="invalid_action", errors=["out_of_range"]),
    Case("eight apart", [choose(2992, 3000)], 0.0, ccv=0, stop="invalid_action", errors=["segment_too_short"]),
    Case("nine apart, up to the end", [choose(2991, 3000), ANSWER], 1.02),
    Case(
        "zoom and answer in one turn: never executed",
        [choose(100, 200) + ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.02,
        reference_ccv=1,
        reference_stop="answer",
        errors=["multiple_calls"],
    ),
    Case(
        "a made-up reply",
        [get("0:34") + "Frame number at time 0:34 is: 815." + choose(700, 900) + ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.52,
        reference_ccv=1,
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["multiple_calls", "multiple_calls"],
    ),
    Case(
        "empty answer", [turn("done", "output answer:")], 0.0, ccv=0, stop="invalid_action", errors=["malformed_call"]
    ),
    Case("answer on the next line", [turn("done", "output answer:\nB")], 1.0),
    Case("a number before the pair", [choose(100, 200, "3 people, 100 to 200"), ANSWER], 1.02),
    Case("leading zeros", [choose(100, 200, "0100 0200"), ANSWER], 1.02),
    Case("hyphens", [choose(100, 200, "frame-100 to frame-200"), ANSWER], 1.02),
    Case("underscores", [choose(100, 200, "frame_100 to frame_200"), ANSWER], 0.0, ccv=0),
    Case("decimals", [choose(100, 200, "100.0 200.0"), ANSWER], 0.0, ccv=0),
    Case("a range", [choose(100, 200, "range 100-200."), ANSWER], 1.02),
    Case("action before thought", ["<action>output answer: B</action><think>done</think>"], 1.0),
    # What the list does not name.
    Case("no action", ["<think>hm</think>"], 0.0, ccv=0, stop="no_action"),
    Case("no thought", ["<action>output answer: B</action>"], 0.0, ccv=0),
    Case("script ends early", [choose(100, 200)], 0.0, ccv=0, stop="script_exhausted"),
    Case("turns after the answer are ignored", [ANSWER, choose(200, 100), WRONG], 1.0),
    Case(
        "reversed segment",
        [choose(200, 100), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        errors=["reversed_segment"],
    ),
    Case(
        "an end beyond the video is clamped in the published code",
        [choose(2900, 5000), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.02,
        reference_ccv=1,
        reference_stop="answer",
        errors=["out_of_range"],
    ),
    Case(
        "a time beyond the video",
        [get("99:59"), choose(100, 200_000), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.52,
        reference_ccv=1,
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["out_of_range"],
    ),
    Case(
        "seconds above 59",
        [get("0:75"), choose(2200, 2300), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.52,
        reference_ccv=1,
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["malformed_call"],
    ),
    Case(
        "decimal frame number",
        [turn("100 and 200", "choose frames between 100 and 200.5"), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.02,
        reference_ccv=1,
        reference_stop="answer",
        errors=["malformed_call"],
    ),
    Case(
        "words before the action: executed as published, but scored 0",
        [turn("100 and 200", "now choose frames between 100 and 200"), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        errors=["malformed_call"],
    ),
    Case(
        "thoughts are counted over the rollout as published, per turn here",
        [choose(100, 200) + "<think>waiting</think>", "<action>output answer: B</action>"],
        0.0,
        ccv=0,
        reference=1.02,
        reference_ccv=1,
    ),
]

AT_125_S = [  # T = 3000 frames at 24000/1001 per second: 0:34 is frame 815, 0:10 is frame 239
    Case("time, zoom", [get("0:34"), choose(700, 900), ANSWER], 1.52, question=TIMED_QUESTION),
    Case("no time in the question", [get("0:34"), choose(700, 900), ANSWER], 1.02),
    Case("wrong answer", [get("0:34"), choose(700, 900), WRONG], 0.0, question=TIMED_QUESTION),
    Case("time, answer", [get("0:34"), ANSWER], 0.0, ccv=0, question=TIMED_QUESTION),
    Case("a zoom elsewhere", [get("0:34"), choose(565, 645), ANSWER], 0.0, ccv=0, question=TIMED_QUESTION),
    Case("time, time, zoom", [get("0:10"), get("0:34"), choose(700, 900), ANSWER], 1.52, question=TIMED_QUESTION),
    Case(
        "the same time twice",
        [get("0:34"), choose(700, 900), get("0:34"), choose(800, 900), ANSWER],
        0.0,
        ccv=0,
        question=TIMED_QUESTION,
    ),
    Case(
        "the same time in other words",
        [get("0:34"), choose(700, 900), get("00:34"), choose(800, 900), ANSWER],
        1.52,
        question=TIMED_QUESTION,
    ),
]


def by_name(cases: list[Case], video: str) -> list[Any]:
    return [pytest.param(case, video, id=case.name) for case in cases]


@pytest.mark.parametrize(("case", "video"), by_name(AT_100_S, "100 s") + by_name(AT_125_S, "125 s"))
def test_acceptance(case: Case, video: str, make_video: MakeVideo) -> None:
    for compat in ("strict", "reference"):
        result = replay(
            "framethinker", make_video(*VIDEOS[video]), case.question, "B", case.turns, settings={"compat": compat}
        )
        score, ccv, stop = case.strict, case.ccv, case.stop
        if compat == "reference":
            score = score if case.reference is None else case.reference
            ccv = ccv if case.reference_ccv is None else case.reference_ccv
            stop = stop if case.reference_stop is None else case.reference_stop
        reward = result["reward"]
        assert reward["score"] == pytest.approx(score), compat
        assert (reward["ccv"], result["stop_reason"]) == (ccv, stop), compat
        assert reward["score"] == pytest.approx(reward["accuracy"] + reward["action_bonus"])
        if compat == "strict":
            refused = [call for turn in result["turns"] for call in turn["calls"] if not call["ok"]]
            assert [call["error"].split(":")[0] for call in refused] == case.errors
