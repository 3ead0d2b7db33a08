"""The scripts whose replays are recorded: every method, both modes, and what each may be asked and may write.

A script is data: nothing of the package is imported here. `VIDEO` in a turn stands for the path of the script's video.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.turns import framethinker, tagged, videobrain
from tests.turns.framethinker import choose, get, turn
from tests.turns.tagged import think, tool_call, zoom
from tests.turns.videobrain import clip, uniform
from tests.turns.videobrain import think as brain

CHOICE = "What happens at 0:34?\nA. nothing\nB. a goal\nC. a foul"
CHOICE_EXTRA = {"question_type": "mc", "options": ["nothing", "a goal", "a foul"]}

VIDEOS = {
    "minute": (600, Fraction(10)),
    "broadcast_rate": (720, Fraction(24000, 1001)),
    "long": (400, Fraction(1)),
    "short": (6, Fraction(1, 5)),
}
"""Number of frames and frames per second of the recording's videos, all grey and 64 x 36 pixels."""


@dataclass(frozen=True)
class Script:
    """One replay: the arguments of `replay`, and which doubles stand beside it."""

    id: str
    method: str
    turns: Sequence[str]
    video: str = "minute"
    question: str = CHOICE
    answer: str = "B"
    extra: Mapping[str, Any] = field(default_factory=lambda: CHOICE_EXTRA)
    settings: Mapping[str, Any] = field(default_factory=dict)
    judge: bool = False
    retriever: bool = False
    templates: str | None = None
    """Text of a `templates_file`."""
    prompt: str | None = None
    """Text of a `prompt_file`."""


# ----------------------------------------------------------------------------------------------------- turns by method


def _crop(start: Any, end: Any, **arguments: Any) -> str:
    return tool_call("crop_video", video_path="VIDEO", start_time=start, end_time=end, **arguments)


def _mind(*calls: str, end: str = "<turn_sum>seen</turn_sum>") -> str:
    return "<think>so</think>" + "".join(f"<tool_call>{call}</tool_call>" for call in calls) + end


ANSWERS = {
    "framethinker": framethinker.answer,
    "videozoomer": tagged.answer,
    "longvt": tagged.answer,
    "videobrain": videobrain.answer,
    "framemind": tagged.answer,
    "direct": lambda text: f"<answer>{text}</answer>",
}
"""An answering turn in each method's grammar."""

B = {method: write("B") for method, write in ANSWERS.items()}

TURNS: dict[str, dict[str, list[str]]] = {
    "framethinker": {
        "zoom": [choose(100, 200), B["framethinker"]],
        "zoom, wrong": [choose(100, 200), ANSWERS["framethinker"]("C")],
        "time and zoom": [get("0:34"), choose(300, 380), B["framethinker"]],
        "time without zoom": [get("0:34"), B["framethinker"]],
        "same segment twice": [choose(100, 200), choose(100, 200), B["framethinker"]],
        "numbers reversed in the thought": [choose(100, 200, "200 then 100"), B["framethinker"]],
        "whole video": [choose(0, 599), B["framethinker"]],
        "reversed": [choose(200, 100), B["framethinker"]],
        "too short": [choose(100, 105), B["framethinker"]],
        "beyond the end": [choose(500, 900), B["framethinker"]],
        "outside": [choose(700, 900), B["framethinker"]],
        "time beyond the end": [get("99:59"), choose(100, 200), B["framethinker"]],
        "malformed time": [get("0:3"), B["framethinker"]],
        "decimal frame": [turn("100 and 200", "choose frames between 100 and 200.5"), B["framethinker"]],
        "unknown action": [turn("so", "rewind the tape"), B["framethinker"]],
        "two actions": [choose(100, 200) + "<action>choose frames between 300 and 400</action>"],
        "call and answer": [choose(100, 200) + B["framethinker"]],
        "no action": ["<think>hm</think>"],
        "no thought": ["<action>output answer: B</action>"],
        "too many turns": [choose(10 * i, 10 * i + 100) for i in range(7)],
        "script ends early": [choose(100, 200)],
        "empty answer": [turn("done", "output answer:")],
    },
    "videozoomer": {
        "zoom": [zoom(4, 6), B["videozoomer"]],
        "zoom, wrong": [zoom(4, 6), ANSWERS["videozoomer"]("C")],
        "two zooms": [zoom(4, 6), zoom(4.5, 5.5, 3), B["videozoomer"]],
        "too many frames": [zoom(0, 17, 1), B["videozoomer"]],
        "reversed": [zoom(6, 4), B["videozoomer"]],
        "too short": [zoom(10, 10.2), B["videozoomer"]],
        "outside": [zoom(150, 152), B["videozoomer"]],
        "beyond the end": [zoom(58, 63), B["videozoomer"]],
        "negative start": [zoom(-1, 1), B["videozoomer"]],
        "no rate": [think('<video_zoom>{"segment": [4, 6]}</video_zoom>'), B["videozoomer"]],
        "rate in words": [zoom(4, 6, "two"), B["videozoomer"]],
        "rate of zero": [zoom(4, 6, 0), B["videozoomer"]],
        "no json": [think("<video_zoom>4 to 6</video_zoom>"), B["videozoomer"]],
        "unknown tool": [think(tool_call("crop_video", start_time=1, end_time=2)), B["videozoomer"]],
        "two calls": [zoom(4, 6) + zoom(8, 9), B["videozoomer"]],
        "call and answer": [zoom(4, 6) + B["videozoomer"], B["videozoomer"]],
        "no thought": ["<answer>B</answer>"],
        "nothing": ["I do not know"],
        "too many turns": [zoom(i, i + 1) for i in range(7)],
        "script ends early": [zoom(4, 6)],
        "answer in words": [ANSWERS["videozoomer"]("a goal")],
    },
    "longvt": {
        "crop": [think(_crop(10.0, 20.0)), B["longvt"]],
        "crop, wrong": [think(_crop(10.0, 20.0)), ANSWERS["longvt"]("C")],
        "crop elsewhere": [think(_crop(30.0, 40.0)), B["longvt"]],
        "two crops": [think(_crop(10, 14)), think(_crop(12, 22.5)), B["longvt"]],
        "two calls in one turn": [think(_crop(10, 14) + _crop(16, 20)), B["longvt"]],
        "six calls in one turn": [think("".join(_crop(i, i + 3) for i in range(6))), B["longvt"]],
        "another path": [
            think(tool_call("crop_video", video_path="/etc/x.mp4", start_time=1, end_time=5)),
            B["longvt"],
        ],
        "no path": [think(tool_call("crop_video", start_time=1, end_time=5)), B["longvt"]],
        "reversed": [think(_crop(20, 10)), B["longvt"]],
        "too short": [think(_crop(10, 10.01)), B["longvt"]],
        "outside": [think(_crop(100, 120)), B["longvt"]],
        "beyond the end": [think(_crop(50, 70)), B["longvt"]],
        "time in words": [think(_crop("ten", 20)), B["longvt"]],
        "missing argument": [think(tool_call("crop_video", start_time=10)), B["longvt"]],
        "one argument too many": [think(_crop(10, 20, fps=2)), B["longvt"]],
        "unknown tool": [think(tool_call("rewind", seconds=3)), B["longvt"]],
        "no json": [think("<tool_call>crop</tool_call>"), B["longvt"]],
        "call and answer": [think(_crop(10, 20)) + "<answer>B</answer>", B["longvt"]],
        "no thought": ["<answer>B</answer>"],
        "nothing": ["I do not know"],
        "too many turns": [think(_crop(2 * i, 2 * i + 4)) for i in range(8)],
        "script ends early": [think(_crop(10, 20))],
    },
    "videobrain": {
        "uniform": [uniform(100, 200), B["videobrain"]],
        "uniform, wrong": [uniform(100, 200), ANSWERS["videobrain"]("C")],
        "by text": [clip(0, 599), B["videobrain"]],
        "both": [uniform(100, 200), clip(200, 400), B["videobrain"]],
        "same call twice": [uniform(100, 200), uniform(100, 200), B["videobrain"]],
        "reversed": [uniform(200, 100), B["videobrain"]],
        "outside": [uniform(700, 900), B["videobrain"]],
        "beyond the end": [uniform(500, 900), B["videobrain"]],
        "number in words": [uniform("ten", 100), B["videobrain"]],
        "missing argument": [brain(tool_call("uniform_sample", start_frame=3)), B["videobrain"]],
        "text is a number": [clip(0, 599, 7), B["videobrain"]],
        "empty text": [clip(0, 599, " "), B["videobrain"]],
        "unknown tool": [brain(tool_call("rewind", seconds=3)), B["videobrain"]],
        "no json": [brain("<tool_call>uniform</tool_call>"), B["videobrain"]],
        "two calls": [
            brain(tool_call("uniform_sample", start_frame=0, end_frame=9) * 2),
            B["videobrain"],
        ],
        "call and answer": [uniform(100, 200) + B["videobrain"], B["videobrain"]],
        "no thought": ["<answer>B</answer>"],
        "nothing": ["I do not know"],
        "too many turns": [uniform(20 * i, 20 * i + 100) for i in range(8)],
        "script ends early": [uniform(100, 200)],
    },
    "framemind": {
        "clip": [_mind("VideoClip(5, 9)"), B["framemind"]],
        "clip, wrong": [_mind("VideoClip(5, 9)"), ANSWERS["framemind"]("C")],
        "frame": [_mind("FrameAt(12.5)"), B["framemind"]],
        "both in one turn": [_mind("VideoClip(5, 9)", "FrameAt(t=12.5)"), B["framemind"]],
        "three in one turn": [_mind("FrameAt(1)", "FrameAt(2)", "FrameAt(3)"), B["framemind"]],
        "reversed": [_mind("VideoClip(9, 5)"), B["framemind"]],
        "outside": [_mind("FrameAt(99)"), B["framemind"]],
        "negative": [_mind("FrameAt(-1)"), B["framemind"]],
        "clip without a frame": [_mind("VideoClip(5.01, 5.02)"), B["framemind"]],
        "no number": [_mind("FrameAt(abc)"), B["framemind"]],
        "one number": [_mind("VideoClip(1)"), B["framemind"]],
        "unknown tool": [_mind("frame_at(3)"), B["framemind"]],
        "unreadable": [_mind("FrameAt(3"), B["framemind"]],
        "only a summary": [_mind(), B["framemind"]],
        "call without summary": [_mind("FrameAt(3)", end=""), B["framemind"]],
        "call and answer": [_mind("FrameAt(3)", end="<answer>B</answer>"), B["framemind"]],
        "no thought": ["<answer>B</answer>"],
        "nothing": ["I do not know"],
        "too many turns": [_mind(f"FrameAt({i})") for i in range(5)],
        "script ends early": [_mind("FrameAt(3)")],
    },
    "direct": {
        "bare letter": ["B"],
        "last line": ["I think of the foul first.\nThe answer is B."],
        "nothing": [""],
        "wrong": ["C"],
        "two turns": ["B", "C"],
        "a call": [tool_call("crop_video", start_time=1, end_time=2)],
        "no turn": [],
    },
}
"""Turns by method and by what is special about them; each also begins with an answer alone (`scripts`)."""

FEW_FRAMES: dict[str, dict[str, Any]] = {
    "framethinker": {"initial_frames": 2, "initial_frames_long": 4, "call_frames": 4, "call_frames_long": 5},
    "videozoomer": {"initial_frames": 2},
    "longvt": {"initial_frames": 2, "call_frames": 5},
    "videobrain": {"initial_frames": 2, "call_frames": 3, "clip_frames": 2},
    "framemind": {"low": [4, 28], "high": [2, 56], "tool_side_pixels": 56, "min_call_frames": 2, "call_frames": 4},
    "direct": {"initial_frames": 2},
}
"""Settings that keep the recording small."""

MODES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("framethinker", "videozoomer", "longvt", "videobrain"), ("strict", "reference")),
    **dict.fromkeys(("framemind", "direct"), ("strict",)),
}

# ---------------------------------------------------------------------------------------------- questions and settings

QUESTIONS: list[tuple[str, str, str, dict[str, Any], list[str]]] = [
    ("mc", CHOICE, "B", CHOICE_EXTRA, ["b", "B. a goal", "(B)", "a goal", "either A or B", ""]),
    ("numeric", "How many?", "3", {"question_type": "numeric"}, ["3", "three", "3.0 goals", "4"]),
    ("regression", "How far, in metres?", "20", {"question_type": "regression"}, ["20", "19 m", "40", "far"]),
    ("segment", "When?", "[10, 20]", {"question_type": "segment"}, ["[10, 20]", "[12.5, 22.5]", "from 0:10 to 0:20"]),
    ("open", "What is shot?", "a goal", {"question_type": "open"}, ["a goal", "The goal.", "a foul", "goal and foul"]),
]
"""Name, question, truth, `extra_info`, and answers to it."""

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "framethinker": {
        "answer_grading": {"answer_grading": "choice"},
        "bonuses": {"choose_bonus": 0.1, "time_bonus": 0.25, "bonus_condition": "always", "format_reward": 0.5},
        "named_time": {"time_bonus_for": "named_time"},
        "no_ccv": {"ccv": False},
        "inference": {"ccv_profile": "inference"},
        "answer_only": {"answer_only": True},
        "goes_on": {"end_on_call_error": False},
        "max_turns": {"max_turns": 2},
    },
    "videozoomer": {
        "tool_bonus": {"tool_bonus": 0.25, "bonus_condition": "always"},
        "call_penalty": {"call_penalty": 0.1},
        "require_zoom": {"require_zoom": True},
        "ends": {"end_on_call_error": True},
        "call_frames": {"call_frames": 2},
        "max_turns": {"max_turns": 2},
    },
    "longvt": {
        **{f"time_reward {name}": {"time_reward": name} for name in ("recall", "boundary", "tool", "none")},
        "one_call": {"max_calls_per_turn": 1},
        "fps": {"fps": 0.5, "time_weight": 0.5},
        "max_turns": {"max_turns": 2},
    },
    "videobrain": {
        "no_gate": {"format_gate": False, "format_reward": 0.25},
        "one_tool": {"tool_names": ["uniform_sample"]},
        "stretched": {"aspect": "stretch"},
        "max_turns": {"max_turns": 2},
    },
    "framemind": {
        **{f"rung {number}": {"rung": number} for number in (1, 3, 8)},
        "num_rungs": {"num_rungs": 3, "rung": 2},
        "nested_times": {"nested_times": True, "rung": 2},
        "turn_sum": {"continue_on": "turn_sum"},
        "tool_call": {"continue_on": "tool_call"},
        "summaries": {"turn_counting": "summaries"},
        "context": {"context": "last_evidence"},
    },
    "direct": {"accuracy_reward": {"accuracy_reward": 0.5}, "box": {"box": [32, 32]}},
}
"""Overrides as `--set` gives them."""

SETTINGS_TURNS: dict[str, tuple[str, ...]] = {
    "framethinker": ("time and zoom", "reversed"),
    "videozoomer": ("two zooms", "reversed"),
    "longvt": ("two crops", "two calls in one turn"),
    "videobrain": ("both", "reversed"),
    "framemind": ("both in one turn", "clip without a frame"),
    "direct": ("bare letter",),
}
"""What is replayed under each override."""

TEMPLATES: dict[str, str] = {
    "videozoomer": "observation = 'Seen: {frames}'\nrefusal = 'No: {error}'",
    "longvt": "observation = 'Seen: {frames}'\nrefusal = 'No: {error}'\nbetween = ' and '",
}
REFUSED: dict[str, dict[str, Any]] = {
    "unknown method": {"method": "framethinkers"},
    "unknown field": {"settings": {"no_such_field": 1}},
    "field out of range": {"settings": {"max_turns": 0}},
    "field of another type": {"settings": {"max_turns": "many"}},
    "compat": {"settings": {"compat": "loose"}},
    "question type": {"extra": {"question_type": "essay"}},
    "options": {"extra": {"options": "none"}},
    "segment": {"extra": {"video_segment": [3]}},
    "no judge": {"question": "What?", "answer": "a goal", "extra": {"question_type": "open"}},
    "numeric truth": {"answer": "many", "extra": {"question_type": "numeric"}},
    "regression truth": {"answer": "far", "extra": {"question_type": "regression"}},
    "segment truth": {"answer": "[20, 10]", "extra": {"question_type": "segment"}},
    "mc truth": {"answer": "Q", "extra": CHOICE_EXTRA},
    "no class": {"method": "videobrain"},
    "no segment": {"method": "longvt"},
    "templates": {"method": "longvt", "templates": "observation = 'no frames'"},
    "missing video": {"video": "missing"},
    "missing video, videozoomer": {"method": "videozoomer", "video": "missing"},
}
"""What `replay` refuses, or a video that is not there; FrameThinker's answer unless it says otherwise."""

CLASSES = {"strict": "active", "reference": "b"}


def scripts() -> Iterator[Script]:
    """All scripts of the recording, in a fixed order, each with an id of its own."""
    for method, modes in MODES.items():
        for mode in modes:
            yield from _of_mode(method, mode)
        yield from _of_settings(method)
    for name, fields in REFUSED.items():
        yield Script(**{"id": f"refused/{name}", "method": "framethinker", "turns": [B["framethinker"]], **fields})


def _of_mode(method: str, mode: str) -> Iterator[Script]:
    for name, turns in {"answer": [B[method]], **TURNS[method]}.items():
        yield _script(f"{method}/{mode}/{name}", method, turns, mode)
    for name, question, truth, extra, answers in QUESTIONS:
        for text in answers:
            turns = [TURNS[method]["zoom" if method == "framethinker" else _look(method)][0]] if text == truth else []
            turns = [*turns, text if method == "direct" else ANSWERS[method](text)]
            asked = {"question": question, "answer": truth, "extra": {**extra, **_row(method, mode)}}
            yield _script(f"{method}/{mode}/{name} {text!r}", method, turns, mode, judge=name == "open", **asked)
    for video in ("broadcast_rate", "long", "short"):
        turns = [*TURNS[method][_look(method)][:1], B[method]]
        yield _script(f"{method}/{mode}/{video}", method, turns, mode, video=video)


def _of_settings(method: str) -> Iterator[Script]:
    for name, fields in SETTINGS[method].items():
        for turns in SETTINGS_TURNS[method]:
            yield _script(f"{method}/set {name}/{turns}", method, TURNS[method][turns], **fields)
    turns = TURNS[method][_look(method)]
    yield _script(f"{method}/defaults", method, turns, few_frames=False)
    yield _script(f"{method}/prompt file", method, turns, prompt="Look closely.")
    if method in TEMPLATES:
        for name in (_look(method), "reversed"):
            yield _script(f"{method}/templates/{name}", method, TURNS[method][name], templates=TEMPLATES[method])
    for label in ("direct", "adaptive", "active") if method == "videobrain" else ():
        for name in ("uniform", "uniform, wrong"):
            extra = {**CHOICE_EXTRA, "classification": label}
            yield _script(f"{method}/{label}/{name}", method, TURNS[method][name], extra=extra)
    if method == "videobrain":
        yield _script(f"{method}/no retriever", method, TURNS[method]["by text"], retriever=False)


def _look(method: str) -> str:
    """The plain case of the method."""
    return {"longvt": "crop", "videobrain": "uniform", "framemind": "clip", "direct": "bare letter"}.get(method, "zoom")


def _row(method: str, mode: str) -> dict[str, Any]:
    """What rows of the method hold beside the question."""
    if method == "videobrain":
        return {"classification": CLASSES[mode]}
    return {"video_segment": [10.0, 20.0]} if method == "longvt" else {}


def _script(
    id: str,
    method: str,
    turns: Sequence[str],
    mode: str = "strict",
    *,
    few_frames: bool = True,
    video: str = "minute",
    question: str = CHOICE,
    answer: str = "B",
    extra: Mapping[str, Any] | None = None,
    judge: bool = False,
    retriever: bool = True,
    templates: str | None = None,
    prompt: str | None = None,
    **settings: Any,
) -> Script:
    compat = {"compat": mode} if mode != "strict" else {}
    return Script(
        id,
        method,
        turns,
        video,
        question,
        answer,
        {**CHOICE_EXTRA, **_row(method, mode)} if extra is None else extra,
        {**(FEW_FRAMES[method] if few_frames else {}), **compat, **settings},
        judge,
        retriever,
        templates,
        prompt,
    )
