"""VideoZoomer under scripted policies: every acceptance case that needs no tokens, strict and as published.

The tables are documentation: a case names what the policy writes, what each mode pays, and how the rollout ends. J with
a number names one of the acceptance cases that the project started from.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.methods.videozoomer.scripted import GOOD, QUESTION, RIGHT, WRONG
from tests.turns.tagged import answer, think, zoom
from tests.videos.files import MakeVideo
from verl_video_tools.replay import replay


@dataclass
class Case:
    """One scripted rollout on a video of 100 s; the truth is B. `None` for the reference means: as strict."""

    name: str
    turns: list[str]
    strict: tuple[float, float, float]
    """Rewards for accuracy, format and tool; the score is their sum."""
    stop: str = "answer"
    reference: tuple[float, float, float] | None = None
    reference_stop: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    """Codes of refused calls in strict mode."""


NOTHING = (0.0, 0.0, 0.0)

CASES = [
    Case("direct answer", [RIGHT], (0.9, 0.1, 0)),
    Case("direct wrong answer", [WRONG], (0, 0.1, 0)),
    Case("zoom", [GOOD, RIGHT], (0.9, 0.1, 0.5)),
    Case("zoom, as the published script is configured", [GOOD, RIGHT], (0.9, 0.1, 0), settings={"tool_bonus": 0}),
    Case("zoom, wrong", [GOOD, WRONG], (0, 0.1, 0)),
    Case("four zooms, one bonus", [GOOD] * 4 + [RIGHT], (0.9, 0.1, 0.5)),
    Case(
        "over budget",
        [zoom(0, 17, 1), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0, 0.5),
        errors=["too_many_frames"],
    ),
    Case(
        "over budget by less than a frame",
        [zoom(0, 16.9, 1), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0.1, 0.5),
        errors=["too_many_frames"],
    ),
    Case(
        "reversed", [zoom(8, 0), RIGHT], (0.9, 0, 0), reference=(0.9, 0.1, 0.5), errors=["reversed_segment"]
    ),
    Case(
        "no frames", [zoom(4, 4.1), RIGHT], (0.9, 0, 0), reference=(0.9, 0.1, 0.5), errors=["segment_too_short"]
    ),
    Case(
        "no fps",
        [think('<video_zoom>{"segment": [4, 6]}</video_zoom>'), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0, 0.5),
        errors=["malformed_call"],
    ),
    Case("fps in quotes", [zoom(4, 6, "4"), RIGHT], (0.9, 0.1, 0.5)),
    Case(
        "a third number in the segment",
        [think('<video_zoom>{"segment": [4, 6, 8], "fps": 2}</video_zoom>'), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0.1, 0.5),
        errors=["malformed_call"],
    ),
    Case(
        "words around the JSON",
        [think('<video_zoom>see {"segment": [4, 6], "fps": 2} please</video_zoom>'), RIGHT],
        (0.9, 0, 0.5),
    ),
    Case("zoom and answer in one turn: the zoom", [GOOD + "<answer>C</answer>", RIGHT], (0.9, 0, 0.5)),
    Case(
        "answer and zoom in one turn: the zoom",
        [think('<answer>C</answer><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>'), RIGHT],
        (0.9, 0, 0.5),
    ),
    Case("five zooms", [GOOD] * 5, NOTHING, stop="max_turns", errors=["turn_limit"]),
    Case("zoom only", [GOOD], NOTHING, stop="script_exhausted"),
    Case(
        "zoom and answer in the only turn",
        [GOOD + "<answer>B</answer>"],
        NOTHING,
        stop="script_exhausted",
        reference=(0.9, 0, 0.5),
    ),
    Case(
        "zoom and answer in the last turn",
        [GOOD] * 4 + [GOOD + "<answer>B</answer>"],
        NOTHING,
        stop="max_turns",
        reference=(0.9, 0, 0.5),
        errors=["turn_limit"],
    ),
    Case(
        "two objects in one request",
        [think('<video_zoom>{"segment": [4, 6], "fps": 2} {"segment": [8, 9], "fps": 2}</video_zoom>'), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0, 0.5),
        errors=["malformed_call"],
    ),
    Case("text after the answer", [RIGHT + " done"], (0.9, 0, 0)),
    Case("text before the answer", [think(" Clearly: <answer>B</answer>")], (0.9, 0.1, 0)),
    Case("two answers: the last", [think("<answer>A</answer><answer>B</answer>")], (0.9, 0, 0)),
    Case("letter and text", [answer("B. The cat")], (0.9, 0.1, 0)),
    Case("boxed letter", [answer(r"\boxed{B}")], (0.9, 0.1, 0)),
    Case("boxed letter and text", [answer(r"\boxed{B. The shark.}")], (0.9, 0.1, 0)),
    Case("letter in brackets", [answer("(B)")], (0.9, 0.1, 0), reference=(0, 0.1, 0)),
    Case("letter and bracket", [answer("B)")], (0.9, 0.1, 0), reference=(0, 0.1, 0)),
    Case("small letter", [answer("b")], (0.9, 0.1, 0), reference=(0, 0.1, 0)),
    Case("no tags", ["B"], NOTHING, stop="no_action", reference=(0.9, 0, 0)),
    Case(
        "a penalty per zoom",
        [GOOD, GOOD, RIGHT],
        (0.9, 0.1, -0.1),
        settings={"tool_bonus": 0, "call_penalty": 0.05},
    ),
    Case(
        "a penalty whatever the answer",
        [GOOD, WRONG],
        (0, 0.1, -0.1),
        settings={"tool_bonus": -0.1, "bonus_condition": "always"},
    ),
    Case("bonus suppressed", [GOOD, RIGHT], (0.9, 0.1, 0), settings={"tool_bonus": 0}),
    Case("forced to zoom", [RIGHT], NOTHING, settings={"require_zoom": True}),
    Case("forced to zoom, and did", [GOOD, RIGHT], (0.9, 0.1, 0.5), settings={"require_zoom": True}),
    Case(
        "forced to zoom, and only tried",
        [zoom(8, 0), RIGHT],
        NOTHING,
        reference=(0.9, 0.1, 0.5),
        settings={"require_zoom": True},
        errors=["reversed_segment"],
    ),
    Case(
        "two requests in one turn",
        [GOOD + zoom(8, 9), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0, 0.5),
        errors=["multiple_calls", "multiple_calls"],
    ),
    Case(
        "JSON on two lines: refused as published, but paid",
        [think('<video_zoom>{"segment": [4, 6],\n"fps": 2}</video_zoom>'), RIGHT],
        (0.9, 0.1, 0.5),
    ),
    # What the list does not name.
    Case(
        "a segment after the end: the last frame eight times, as published",
        [zoom(150, 152, 4), RIGHT],
        (0.9, 0, 0),
        reference=(0.9, 0.1, 0.5),
        errors=["out_of_range"],
    ),
    Case(
        "a made-up reply",
        [think("<tool_response>a goal</tool_response><answer>B</answer>")],
        (0.9, 0, 0),
        reference=(0.9, 0.1, 0),
    ),
    Case("an answer without its closing tag", [think("<answer>B")], NOTHING, stop="no_action", reference=(0.9, 0, 0),
         reference_stop="answer"),
    Case("an empty answer", [answer(" ")], NOTHING, stop="no_action", reference=(0, 0.1, 0)),
    Case("no thought", ["<answer>B</answer>"], (0.9, 0, 0)),
    Case("an error, then a good zoom", [zoom(8, 0), GOOD, RIGHT], (0.9, 0, 0.5), reference=(0.9, 0.1, 0.5),
         errors=["reversed_segment"]),
    Case("white space around a turn", [f"\n{RIGHT}\n"], (0.9, 0.1, 0)),
    Case(
        "white space around the last of two turns",
        [f" {GOOD} ", f" {RIGHT} "],
        (0.9, 0.1, 0.5),
        reference=(0.9, 0, 0.5),
    ),
    Case("turns after the answer are ignored", [RIGHT, GOOD, WRONG], (0.9, 0.1, 0)),
    Case(
        "a millisecond at 16,000 frames per second shows one frame, and earns no bonus",
        [zoom(4, 4.001, 16_000), RIGHT],
        (0.9, 0.1, 0),
        reference=(0.9, 0.1, 0.5),
    ),
    Case("two neighbouring frames", [zoom(4, 4.04, 400), RIGHT], (0.9, 0.1, 0.5)),
    Case("one frame, asked for as one", [zoom(4, 6, 0.5), RIGHT], (0.9, 0.1, 0), reference=(0.9, 0.1, 0.5)),
]  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_acceptance(case: Case, make_video: MakeVideo) -> None:
    for compat in ("strict", "reference"):
        result = replay(
            "videozoomer", make_video(), QUESTION, "B", case.turns, settings={"compat": compat, **case.settings}
        )
        parts, stop = case.strict, case.stop
        if compat == "reference":
            parts = case.reference or parts
            stop = case.reference_stop or stop
        reward = result["reward"]
        assert (reward["accuracy"], reward["format"], reward["tool"]) == pytest.approx(parts), compat
        assert reward["score"] == pytest.approx(sum(parts))
        assert result["stop_reason"] == stop, compat
        if compat == "strict":
            refused = [call for turn in result["turns"] for call in turn["calls"] if not call["ok"]]
            assert [call["error"].split(":")[0] for call in refused] == case.errors


@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_truth_with_a_full_stop(make_video: MakeVideo, compat: str) -> None:
    extra = {"question_type": "mc"}
    result = replay("videozoomer", make_video(), QUESTION, "B.", [RIGHT], extra, settings={"compat": compat})
    assert result["reward"]["score"] == pytest.approx(1.0)
