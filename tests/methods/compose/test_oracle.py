"""The scripted expert of a composition: right, in its grammar, by the first tool that shows a part of the video."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.methods.compose.test_composition import GOOD, write
from tests.methods.frame_index import index_in
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import PixelEnvelope, Sample, ToolContext
from verl_video_tools.data.sft import export_sft, scripted_oracle
from verl_video_tools.data.synthetic_rows import make_demo
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.compose.oracle import ComposeOracle
from verl_video_tools.methods.longvt.method import CropVideo
from verl_video_tools.methods.toolkit.oracle import video_info
from verl_video_tools.synthetic.needle import needle_questions, needle_spec
from verl_video_tools.synthetic.questions import make_questions
from verl_video_tools.synthetic.world import frames_at, random_spec

WORLD = [(spec, question) for spec in map(random_spec, range(30)) for question in make_questions(spec, count=4, seed=0)]
NEEDLES = [
    (spec, question) for spec in map(needle_spec, range(4)) for question in needle_questions(spec, count=4, seed=0)
]
SMALL = GOOD.replace("num_frames: 4", "num_frames: 8")
CROP = "{name: crop_video, fps: 1, max_frames: 32}"


def composed(folder: Path, tool: str = CROP) -> Compose:
    text = SMALL.replace("{name: crop_video, fps: 2, max_frames: 8}", tool)
    method = get_method("compose", file=write(folder, text))
    assert isinstance(method, Compose)
    return method


async def test_the_expert_is_right_and_says_what_its_calls_show(tmp_path: Path) -> None:
    method = composed(tmp_path)
    expert, tool = ComposeOracle(method=method, answers_in_words=True), method.composition.tools["crop_video"]
    right = 0
    for spec, question in [*WORLD, *NEEDLES]:
        script = expert.script(spec, question)
        *calls, last = [method.parse(turn) for turn in script.turns]
        assert all(turn.well_formed for turn in (*calls, last)) and len(calls) == (script.template == "look")
        right += last.answer == question.options[question.answer]
        for turn in calls:
            (call,) = turn.calls
            info = video_info(spec)
            context = ToolContext(info, Sample("", "", "", "mc"), PixelEnvelope(), index_in(spec))
            request = (await tool.plan(call.arguments, context)).frames
            assert request is not None
            shown = frames_at(spec, request.seconds or (), request.rounding) + list(request.indices or ())
            assert isinstance(tool, CropVideo)
            start, end = (call.arguments[argument] for argument in ("start_time", "end_time"))
            expected = tool.frame_numbers(start, end, info)
            assert sorted(set(shown)) == sorted(set(expected)), "what the thought goes by is what is shown"
    assert right / len([*WORLD, *NEEDLES]) >= 0.9


def test_an_imperfect_expert_guesses(tmp_path: Path) -> None:
    method = composed(tmp_path)
    expert = ComposeOracle(method=method, imperfection=1.0, answers_in_words=True)
    answers = [method.parse(expert.script(spec, question).turns[-1]).answer for spec, question in WORLD]
    truths = [question.options[question.answer] for _, question in WORLD]
    assert 0.1 < sum(map(str.__eq__, truths, map(str, answers))) / len(WORLD) < 0.6


def test_compositions_without_an_expert_say_so(tmp_path: Path) -> None:
    method = composed(tmp_path, "{name: clip_sample}")
    with pytest.raises(UsageError, match=r"no scripted expert for the tools clip_sample; it needs crop_video"):
        scripted_oracle(method)


def test_without_tools_it_answers_at_once(tmp_path: Path) -> None:
    text = SMALL.replace("tools:\n  - {name: crop_video, fps: 2, max_frames: 8}", "tools: []")
    method = get_method("compose", file=write(tmp_path, text))
    assert isinstance(method, Compose)
    scripts = [ComposeOracle(method=method).script(spec, question) for spec, question in WORLD]
    assert {script.template for script in scripts} == {"direct"} and {len(script.turns) for script in scripts} == {1}


@pytest.mark.slow
def test_a_cold_start_is_written_for_it(tmp_path: Path) -> None:
    make_demo(tmp_path, 2, 1, questions_per_video=4, agent_names=["compose"], num_processes=1)
    out = tmp_path / "sft.parquet"
    report = export_sft(tmp_path / "train.parquet", out, settings={"file": "demo"})
    assert report.kept.total() >= 6, report
    assert set(report.kept) <= {"direct", "look"} and report.kept["look"] >= 4


def test_options_may_be_answered_in_words(tmp_path: Path) -> None:
    method = composed(tmp_path)
    spec, question = WORLD[0]
    letters = ComposeOracle(method=method).script(spec, question).turns[-1]
    words = replace(ComposeOracle(method=method), answers_in_words=True).script(spec, question).turns[-1]
    assert letters.endswith(f"<answer>{question.answer}</answer>")
    assert words.endswith(f"<answer>{question.options[question.answer]}</answer>")
