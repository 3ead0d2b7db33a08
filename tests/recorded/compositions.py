"""What rollouts of the packaged compositions and of examples/compose were shown and earned, and what their expert says.

The packaged ones are those of the recorded learning results (examples/learning_curve/results) and the plain one. `demo`
and `spatial` are set as their recipes set them in the synthetic world.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.judge_server import JudgeServer
from tests.recorded.replays import replay_script
from tests.recorded.scripts import CHOICE_EXTRA, QUESTIONS, TURNS, VIDEOS, Script
from tests.turns.tagged import answer, think, tool_call
from tests.videos.files import write_grey
from verl_video_tools.core.types import FrameRecord, ImagePart, PixelEnvelope, Sample, VideoInfo, content_text
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.methods import get_method, method_class
from verl_video_tools.methods.toolkit.oracle import synthetic_fields
from verl_video_tools.rollout.cost import max_cost_call
from verl_video_tools.synthetic.needle import needle_questions, needle_spec
from verl_video_tools.synthetic.questions import make_questions
from verl_video_tools.synthetic.spatial import spatial_questions, spatial_spec
from verl_video_tools.synthetic.world import random_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "compose" / "longvt_search_ladder.yaml"

_SEARCH = think(tool_call("clip_sample", start_frame=0, end_frame=300, prompt="a dog"))
_CROP = think(tool_call("crop_video", start_time=10, end_time=14))
_ZOOM = think(tool_call("zoom", time=5, box=[8, 0, 40, 32]))
_FEW = ("crop", "crop, wrong", "two crops", "two calls in one turn", "outside", "unknown tool", "call and answer")

_TURNS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "demo": {"answer": [answer("B")], **TURNS["longvt"]},
    "spatial": {
        **{name: TURNS["longvt"][name] for name in _FEW},
        "crop and zoom": [_CROP, _ZOOM, answer("B")],
        "zoom, wrong": [_ZOOM, answer("C")],
        "zoom beside a crop": [_ZOOM + _CROP, answer("B")],
        "zoom outside": [think(tool_call("zoom", time=5, box=[50, 0, 90, 32])), answer("B")],
        "zoom too small": [think(tool_call("zoom", time=5, box=[8, 0, 10, 3])), answer("B")],
        "zoom of no time": [think(tool_call("zoom", box=[8, 0, 40, 32])), answer("B")],
        "too many turns": [_ZOOM] * 5,
    },
    "default": {name: TURNS["longvt"][name] for name in ("crop", "reversed")},
    "example": {
        "search and crop": [_SEARCH, _CROP, answer("B")],
        "search, wrong": [_SEARCH, answer("C")],
        "search twice": [_SEARCH, _SEARCH, answer("B")],
        "without a call": [answer("B")],
        "no text": [think(tool_call("clip_sample", start_frame=0, end_frame=300)), answer("B")],
        "two calls in one turn": [_SEARCH + tool_call("crop_video", start_time=12, end_time=22), answer("B")],
        "nothing": ["I do not know"],
    },
}
_RUNGS = (1, 3, 8)
_VIDEO = VideoInfo(duration_seconds=60.0, num_frames=600, average_fps=10.0, width=64, height=36)
_SIZES = ((64, 36), (640, 360), (1080, 1920))


def composition_lines(folder: Path) -> Iterator[str]:
    """One line of JSON per replay, prompt, most expensive call and script of the expert: its `id` and what was given.

    Args:
        folder: an empty one for videos; its path is replaced by `FOLDER` in the lines.
    """
    for line in _lines(folder):
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":")).replace(str(folder), "FOLDER")


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for name in _TURNS:
        yield {"id": f"{name}/prompt", "messages": _prompt(name)}
        yield {"id": f"{name}/max_cost_call", "frames": _max_cost_calls(name)}
    for name, (num_frames, fps) in VIDEOS.items():
        write_grey(folder / f"{name}.mp4", num_frames, fps, 64, 36)
    with JudgeServer() as judge:
        for script in _scripts():
            replayed = _with_short_frames(replay_script(script, folder, judge.base_url))
            yield {"id": script.id, "replay": {name: replayed[name] for name in _KEPT}}
    for name in ("demo", "spatial"):
        yield from _experts_scripts(name)


def _settings(name: str) -> dict[str, Any]:
    if name in ("demo", "spatial"):
        return {**synthetic_fields(method_class("compose")), "file": name}
    return {"file": str(EXAMPLE) if name == "example" else name}


def _scripts() -> Iterator[Script]:
    for name, named_turns in _TURNS.items():
        extra = {**CHOICE_EXTRA, "video_segment": [10.0, 20.0]}
        settings = _settings(name)
        for case, turns in named_turns.items():
            yield Script(f"{name}/{case}", "compose", turns, extra=extra, settings=settings, retriever=True)
        if name == "default":
            continue
        case, turns = next(iter(named_turns.items()))
        for video in ("broadcast_rate", "long", "short"):
            yield Script(f"{name}/{video}", "compose", turns, video, extra=extra, settings=settings, retriever=True)
    for kind, question, truth, extra, answers in QUESTIONS:
        for text in answers:
            turns = [*([_CROP] if text == truth else []), answer(text)]
            yield Script(
                f"demo/{kind} {text!r}",
                "compose",
                turns,
                question=question,
                answer=truth,
                extra=extra,
                settings=_settings("demo"),
                judge=kind == "open",
            )
    for rung in _RUNGS:
        settings = {**_settings("example"), "rung": rung}
        yield Script(f"example/rung {rung}", "compose", [answer("B")], settings=settings, retriever=True)


_KEPT = ("initial_frames", "turns", "stop_reason", "answer", "error", "reward", "counts")


def _with_short_frames(value: Any) -> Any:
    """A replay with each frame as a list: number, seconds, width, height, and the part or the tiles if it has some."""
    if isinstance(value, Mapping):
        if "timestamp_seconds" in value:
            first = [value[key] for key in ("index", "timestamp_seconds", "width", "height")]
            return first + [each for key, each in value.items() if key in ("region", "tiles")]
        return {key: _with_short_frames(each) for key, each in value.items()}
    return [_with_short_frames(each) for each in value] if isinstance(value, list) else value


def _prompt(name: str) -> list[dict[str, str]]:
    method = get_method("compose", **_settings(name))
    images = [ImagePart(FrameRecord(index, index / 10, 64, 36)) for index in (0, 599)]
    sample = Sample("Which?\nA. a cat\nB. a dog", "A", "v.mp4", "mc", ("a cat", "a dog"))
    messages = method.prompt(sample, _VIDEO, images)
    return [{"role": message.role, "text": content_text(message.content)} for message in messages]


def _max_cost_calls(name: str) -> list[list[int]]:
    """Number, width and height of the frames, by the size and length of the video."""
    method = get_method("compose", **_settings(name))
    envelope = PixelEnvelope(28, 784, 1 << 20)
    costs = []
    for width, height in _SIZES:
        for seconds in (0.5, 7.0, 60.0, 3600.0):
            info = VideoInfo(seconds, int(10 * seconds), 10.0, width, height)
            call = max_cost_call(method, info, envelope)
            assert call is not None
            costs.append([len(call), call.width, call.height])
    return costs


def _experts_scripts(name: str) -> Iterator[dict[str, Any]]:
    """Turns of the composition's scripted expert, also of one that errs and guesses."""
    method = get_method("compose", **_settings(name))
    worlds = {
        "random": [(spec, make_questions(spec, count=3, seed=0)) for spec in map(random_spec, range(4))],
        "needle": [(spec, needle_questions(spec, count=3, seed=0)) for spec in map(needle_spec, range(3))],
        "spatial": [(spec, spatial_questions(spec, 3, seed=0)) for spec in map(spatial_spec, range(4))],
    }
    for imperfection in (0.0, 0.75):
        expert = scripted_oracle(method, imperfection=imperfection, answers_in_words=True)
        for world, specs in worlds.items():
            for number, (spec, questions) in enumerate(specs):
                turns = [list(expert.script(spec, question).turns) for question in questions]
                yield {"id": f"{name}/expert {imperfection}/{world} {number}", "turns": turns}
