"""examples/papers/paravt: parallel crops, gating by the question, and the reward against hand calculations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.papers.paravt.paravt.method import ParaVT
from tests.examples.conftest import EXAMPLES, failed_properties
from tests.examples.test_own_methods import undocumented
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import PixelEnvelope, Sample, VideoInfo
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.replay import areplay
from verl_video_tools.services.tool_model import ScriptedToolModel
from verl_video_tools.synthetic.needle import needle_questions, needle_spec

pytestmark = pytest.mark.slow

FOLDER = EXAMPLES / "papers" / "paravt"
PATH = "examples.papers.paravt.paravt.method:ParaVT"
QUESTION = "What is shown?\nA. a cat\nB. a dog"
TURNS: list[str] = json.loads((FOLDER / "turns.json").read_text())
ANSWER = "<think>It is plain to see.</think><answer>B</answer>"


def call(start: float, end: float, name: str = "crop_video") -> str:
    arguments = {"start_time": start, "end_time": end}
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def roll_out(video: str, *turns: str, **options: Any) -> dict[str, Any]:
    return await areplay(PATH, video, QUESTION, "B", list(turns), **options)


def test_it_uses_documented_names() -> None:
    assert undocumented(FOLDER / "paravt" / "method.py") == []


def test_the_checker_passes() -> None:
    assert failed_properties(PATH) == {}


def test_the_readmes_replay(
    install: Callable[[str], Path], make_video: MakeVideo, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = install("papers/paravt")
    command = ["replay", "--method", "paravt", "--video", make_video(300), "--question", QUESTION, "--answer", "B"]
    assert run([*command, "--turns", str(folder / "turns.json")]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["reward"] == {"score": 2.8, "accuracy": 1.0, "format": 1.0, "tool": 0.8}
    assert result["counts"]["executed_calls"] == 2


async def test_calls_of_a_turn_are_answered_in_their_order(make_video: MakeVideo) -> None:
    turn = "<think>Look at three.</think>" + call(6, 9) + call(5, 2) + call(1, 4)
    result = await roll_out(make_video(300), turn, ANSWER)
    first, refused, last = result["turns"][0]["calls"]
    assert [first["arguments"]["start_time"], last["arguments"]["start_time"]] == [6, 1]
    assert refused["error"].startswith("reversed_segment")
    replies = result["turns"][0]["observation"].split("</tool_response>")
    assert "6.0s" in replies[0] and "Error: reversed_segment" in replies[1] and "1.0s" in replies[2]
    assert result["counts"]["executed_calls"] == 2


async def test_surplus_calls_are_refused(make_video: MakeVideo) -> None:
    turn = "<think>Look at all.</think>" + "".join(call(start, start + 2) for start in range(3))
    result = await roll_out(make_video(300), turn, ANSWER, settings={"max_calls_per_turn": 2})
    assert result["counts"]["executed_calls"] == 2
    assert result["turns"][0]["calls"][2]["error"].startswith("multiple_calls")


@pytest.mark.parametrize(
    ("turns", "accuracy", "form", "tool"),
    [
        ([TURNS[0], ANSWER], 1.0, 1.0, 0.8),
        ([TURNS[0], ANSWER.replace(">B<", ">A<")], 0.0, 1.0, 0.3),
        (["<answer>B</answer>"], 1.0, 0.6, 0.0),  # 0.5 answer, 0.1 closed tags
        (["<think>short</think><answer>B</answer>"], 1.0, 0.6, 0.0),
        (["<think>I never close this thought"], 0.0, -0.15, 0.0),  # half of -0.3
        (["<think>I do not know at all.</think>"], 0.0, 0.5, 0.0),  # 0.2 thought, 0.2 anchor, 0.1 closed tags
        ([call(5, 2), "<answer>B</answer>"], 1.0, 0.6, 0.0),  # refused: as without it
        ([call(1, 4), "<answer>B</answer>"], 1.0, 0.6, 0.8),  # no thought before it
    ],
)
async def test_rewards_equal_a_hand_calculation(
    make_video: MakeVideo, turns: list[str], accuracy: float, form: float, tool: float
) -> None:
    reward = (await roll_out(make_video(300), *turns))["reward"]
    assert {name: reward[name] for name in ("accuracy", "format", "tool")} == pytest.approx(
        {"accuracy": accuracy, "format": form, "tool": tool}
    )


async def test_without_the_anchor_a_direct_answer_earns_less_than_one(make_video: MakeVideo) -> None:
    result = await roll_out(make_video(300), ANSWER, settings={"anchor_weight": 0.0})
    assert result["reward"]["format"] == pytest.approx(0.2 + 0.5 + 0.1)


def test_the_number_of_frames_is_drawn_by_the_question() -> None:
    method, info, envelope = ParaVT(), VideoInfo(300.0, 3000, 10.0, 320, 240), PixelEnvelope()

    def frames(method: ParaVT, number: int, answer: str = "A") -> int:
        sample = Sample(f"Question {number}?", answer, "v.mp4", "mc")
        return len(method.plan_initial_frames(info, sample, envelope).indices or ())

    drawn = Counter(frames(method, number) for number in range(1000))
    assert set(drawn) == {4, 8, 16, 32, 64}
    assert all(150 < times < 250 for times in drawn.values())  # 200 expected, standard deviation 12.6
    for number in range(20):
        sessions = [method.for_session(session, 8, validate=False) for session in range(8)]
        assert len({frames(each, number, answer) for each in sessions for answer in "AB"}) == 1
        assert frames(method.for_session(0, 8, validate=True), number) == 64


async def test_sub_agents_answer_in_words(make_video: MakeVideo) -> None:
    model = ScriptedToolModel(["a cat sleeps", "a dog runs"])
    turn = "<think>Ask about two parts.</think>" + call(6, 9, "ask_model") + call(1, 4, "ask_model")
    result = await roll_out(make_video(300), turn, ANSWER, settings={"summaries": True}, tool_model=model)
    first, second, _ = result["turns"][0]["observation"].split("</tool_response>")
    assert "a cat sleeps" in first and "a dog runs" in second
    assert (result["counts"]["executed_calls"], result["counts"]["tool_frames"]) == (2, 0)
    assert result["reward"]["tool"] == 0.8


def test_the_prompt_names_the_tool_that_there_is() -> None:
    info, sample = VideoInfo(30.0, 300, 10.0, 320, 240), Sample(QUESTION, "B", "v.mp4", "mc")
    for method, name, other in ((ParaVT(), "crop_video", "ask_model"), (ParaVT(summaries=True), "ask_model", "crop_")):
        text = "".join(str(part) for part in method.prompt(sample, info, ())[0].content)
        assert f'"name": "{name}"' in text and other not in text
    assert replace(ParaVT(), summaries=True).asks_model


def test_the_oracle_crops_two_parts_in_one_turn_and_is_right() -> None:
    expert, careless = (scripted_oracle(ParaVT(), seed=2, imperfection=share) for share in (0.0, 1.0))
    info = VideoInfo(1.0, 1, 1.0, 56, 56)
    for spec in (needle_spec(seed) for seed in range(6)):
        for question in needle_questions(spec, 8, seed=0):
            looks, answer = (ParaVT().parse(turn) for turn in expert.script(spec, question).turns)
            assert [call.name for call in looks.calls] == [*ParaVT().tools(info)] * 2
            for call in looks.calls:
                assert 0 <= call.arguments["start_time"] < call.arguments["end_time"] <= spec.duration_seconds
            assert looks.well_formed and answer.well_formed and answer.answer == question.answer
            if question.kind == "direct":  # a guess beside frames that show the answer would teach not to look at them
                assert careless.script(spec, question) == expert.script(spec, question)
