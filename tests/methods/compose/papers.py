"""The same scripted turns through a paper's class and through its composition, and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.recorded.scripts import ANSWERS, CHOICE_EXTRA, QUESTIONS, TURNS, Script
from tests.turns import framethinker, tagged, videobrain
from tests.turns.tagged import think, zoom
from verl_video_tools.core.types import (
    FrameRecord,
    FrameRequest,
    ImagePart,
    Method,
    PixelEnvelope,
    Sample,
    VideoInfo,
    content_text,
)

PAPERS = ("framemind", "framethinker", "longvt", "videobrain", "videozoomer")

JOINED = {
    "framemind": {"tool": ("tool", "tool_if_right")},
    "framethinker": {"action_bonus": ("choose_bonus", "time_bonus"), "format": ()},
}
"""Reward components of the class that a composition pays by several terms, or by none."""

_ROW: dict[str, dict[str, Any]] = {
    "videobrain": {"classification": "active"},
    "longvt": {"video_segment": [10.0, 20.0]},
}
_OTHER_TURNS: dict[str, dict[str, list[str]]] = {
    "framemind": {
        "clip of one frame and a frame": [
            think("<tool_call>VideoClip(5, 5)</tool_call><tool_call>FrameAt(6)</tool_call><turn_sum>so</turn_sum>"),
            tagged.answer("B"),
        ],
    },
    "framethinker": {
        "number of the first frame": [framethinker.get("0:00"), framethinker.choose(0, 80), framethinker.answer("B")],
    },
    "longvt": {"answer with words around": ["Well. " + tagged.answer("B")], "long answer": [tagged.answer("B " * 600)]},
    "videobrain": {
        "nearly the same range": [videobrain.uniform(100, 200), videobrain.uniform(101, 201), videobrain.answer("B")],
        "same text, other range": [videobrain.clip(0, 300), videobrain.clip(300, 599), videobrain.answer("B")],
        "same range, other text": [videobrain.clip(0, 300), videobrain.clip(0, 300, "a foul"), videobrain.answer("B")],
    },
    "videozoomer": {
        "zoom of one frame": [zoom(4, 4.5), tagged.answer("B")],
        "same zoom twice": [zoom(4, 6), zoom(4, 6), tagged.answer("B")],
    },
}
"""Turns in which class and composition are most likely to differ."""

_LOOK = {"longvt": "crop", "videobrain": "uniform", "framemind": "clip"}
_TIME = "What happens at 0:34?\nA. nothing\nB. a goal\nC. a foul"


def scripts(method: str) -> Iterator[Script]:
    """The recorded turns of a method with its defaults: every case, every type of question, and three other videos."""
    row = _ROW.get(method, {})
    plain = Script("", method, (), question=_TIME, extra={**CHOICE_EXTRA, **row}, retriever=True)
    for name, turns in {"answer": [ANSWERS[method]("B")], **TURNS[method], **_OTHER_TURNS[method]}.items():
        yield replace(plain, id=name, turns=turns)
    if method == "framethinker":
        turns = [framethinker.get("0:34"), framethinker.choose(300, 380), framethinker.answer("B")]
        yield replace(plain, id="question without a time", turns=turns, question=_TIME.replace(" at 0:34", ""))
    look = TURNS[method][_LOOK.get(method, "zoom")][0]
    for kind, question, truth, extra, answers in QUESTIONS:
        for text in answers:
            turns = [look] if text == truth else []
            yield replace(
                plain,
                id=f"{kind} {text!r}",
                turns=[*turns, ANSWERS[method](text)],
                question=question,
                answer=truth,
                extra={**extra, **row},
                judge=kind == "open",
            )
    for video in ("broadcast_rate", "long", "short"):
        yield replace(plain, id=video, turns=[look, ANSWERS[method]("B")], video=video)


def differences(method: str, of_class: dict[str, Any], composed: dict[str, Any]) -> list[str]:
    """Names of the parts in which two replays differ."""
    found = [name for name in ("initial_frames", "stop_reason", "answer") if of_class[name] != composed[name]]
    for name in ("text", "calls", "observation"):
        if [turn[name] for turn in of_class["turns"]] != [turn[name] for turn in composed["turns"]]:
            found.append(name)
    joined = JOINED.get(method, {})
    for key, value in of_class["reward"].items():
        own = sum(composed["reward"][part] for part in joined.get(key, (key,)))
        if abs(value - own) > 1e-9:
            found.append(f"reward.{key}")
    return found


def prompt_texts(method: Method, info: VideoInfo) -> list[str]:
    """The messages that start a rollout, as text."""
    sample = Sample("Which?\nA. a cat\nB. a dog", "A", "v.mp4", "mc", ("a cat", "a dog"))
    request = method.plan_initial_frames(info, sample, PixelEnvelope())
    images = [ImagePart(record) for record in _records(request, info)]
    return [content_text(message.content) for message in method.prompt(sample, info, images)]


def _records(request: FrameRequest, info: VideoInfo) -> Iterator[FrameRecord]:
    indices = request.indices or [int(seconds * info.average_fps) for seconds in request.seconds or ()]
    for index in indices:
        yield FrameRecord(index, index / info.average_fps, request.width, request.height)
