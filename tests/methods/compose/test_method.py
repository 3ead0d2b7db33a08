"""A composition at work: the loop, its messages, its reward's keys, and what records say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.methods.compose.test_composition import GOOD, write
from tests.methods.compose.test_grammar import CALLS
from tests.methods.doubles import ScoringRetriever
from tests.turns.tagged import answer, think, tool_call
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import rollout_overrides, zero_reward
from verl_video_tools.core.types import PixelEnvelope, Sample, StopReason, Trajectory, VideoInfo, content_text
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.methods.breakdown import all_components, reward_info
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.compose.composition import PROMPT_VALUES, TOOLS
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.rollout.cost import max_cost_call
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.tool_model import ScriptedToolModel

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=64, height=36)
SAMPLE = Sample("Which?\nA. a cat\nB. a dog", "A", "v.mp4", "mc", ("a cat", "a dog"))
LABELS = {"zoom": "1.50 s, part [0.25, 0, 0.75, 1]"}
"""Of a part of a frame."""
UNIFORM = "plan: uniform, num_frames: 4, min_pixels: 784, max_pixels: 2304"
CROP = think(tool_call("crop_video", start_time=2, end_time=4))


async def run(file: str, turns: list[str], video: str, **fields: Any) -> tuple[Trajectory, dict[str, float]]:
    method = get_method("compose", file=file, **fields)
    sample = replace(SAMPLE, video_path=video)
    trajectory = await execute(method, sample, turns, ScoringRetriever())
    return trajectory, await method.score(trajectory, sample)


async def test_a_rollout_is_run_and_paid_by_the_file(tmp_path: Path, make_video: MakeVideo) -> None:
    file = write(tmp_path, GOOD)
    trajectory, reward = await run(file, [CROP, answer("A")], make_video(300))
    assert [frame.index for frame in trajectory.initial_frames] == [0, 99, 199, 299]
    (call,) = trajectory.executed_calls()
    assert len(call.frames) == 4 and {(frame.width, frame.height) for frame in call.frames} == {(56, 28)}
    assert trajectory.turns[0].observation is not None
    assert trajectory.turns[0].observation.startswith("<tool_response>\nframe 60 at 2.0s: <image>\nframe 80 at 2.7s")
    assert reward == {"score": 1.5, "accuracy": 1.0, "tool": 0.5}
    _, wrong = await run(file, [CROP, answer("B")], make_video(300))
    assert wrong == {"score": 0.0, "accuracy": 0.0, "tool": 0.0}


async def test_turns_end_where_the_file_says(tmp_path: Path, make_video: MakeVideo) -> None:
    file = write(tmp_path, GOOD)
    trajectory, reward = await run(file, [CROP] * 4, make_video(300))
    assert trajectory.stop_reason is StopReason.MAX_TURNS and len(trajectory.turns) == 3
    assert reward == {"score": 0.0, "accuracy": 0.0, "tool": 0.0}
    late = think(tool_call("crop_video", start_time=20, end_time=40))
    trajectory, _ = await run(file, [late, answer("A")], make_video(300))
    assert trajectory.stop_reason is StopReason.ANSWER
    assert "Error: out_of_range" in str(trajectory.turns[0].observation)
    ends = write(tmp_path / "..", GOOD.replace("max_turns: 3", "max_turns: 3, end_on_call_error: true"))
    trajectory, _ = await run(ends, [late, answer("A")], make_video(300))
    assert trajectory.stop_reason is StopReason.INVALID_ACTION


async def test_messages_and_results_in_words(tmp_path: Path, make_video: MakeVideo) -> None:
    text = GOOD.replace("tools:", "tools:\n  - {name: get_frame_number}") + (
        "messages:\n  result: 'Told: {text}'\n  observation: 'Seen: {frames}'\n  frame: '#{index} {image}'\n"
    )
    told = think(tool_call("get_frame_number", time="00:01"))
    both = told + tool_call("crop_video", start_time=2, end_time=2.1)
    trajectory, _ = await run(write(tmp_path, text), [both, answer("A")], make_video(300))
    assert trajectory.turns[0].observation == (
        "Told: Frame number at time 00:01 is: 30.\nSeen: #60 <image>\n#63 <image>"
    )


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_call_of_any_tool_is_shown_and_paid(tool: str, tmp_path: Path, make_video: MakeVideo) -> None:
    file = write(tmp_path, GOOD.replace("{name: crop_video, fps: 2, max_frames: 8}", f"{{name: {tool}}}"))
    method = get_method("compose", file=file)
    assert isinstance(method, Compose)
    sample = replace(SAMPLE, video_path=make_video(2100))
    turns = [think(tool_call(tool, **CALLS[tool])), answer("A")]
    episode = Episode(method, sample, retriever=ScoringRetriever(), tool_model=ScriptedToolModel(["a dog"]))
    trajectory = await episode.run(ScriptedPolicy(turns))
    assert trajectory.stop_reason is StopReason.ANSWER and trajectory.flags == []
    (call,) = trajectory.executed_calls()
    observation = str(trajectory.turns[0].observation)
    assert observation.count("<image>") == len(call.frames)
    assert call.frames or "is: " in observation or "a dog" in observation, "what shows no frames answers in words"
    if tool in LABELS:
        assert f"{LABELS[tool]}: <image>" in observation
    assert await method.score(trajectory, sample) == {"score": 1.5, "accuracy": 1.0, "tool": 0.5}


def test_what_a_right_answer_earns_is_the_files_to_say(tmp_path: Path) -> None:
    paid = get_method("compose", file=write(tmp_path, GOOD))
    for method in (paid, replace(paid, accuracy_reward=4.0)):
        right = method.accuracy_reward
        assert [method.acc({"accuracy": right * value}, SAMPLE) for value in (0.0, 0.5, 1.0)] == [0.0, 0.0, 1.0]
    with pytest.raises(UsageError, match=r"Compose\.accuracy_reward must be above 0, because `acc` is read from it"):
        replace(paid, accuracy_reward=0.0)


async def test_an_unpaid_term_is_recorded_and_not_added(tmp_path: Path, make_video: MakeVideo) -> None:
    file = write(tmp_path, GOOD.replace("weight: 0.5", "weight: 0"))
    _, reward = await run(file, [CROP, answer("A")], make_video(300))
    assert reward == {"score": 1.0, "accuracy": 1.0, "tool": 1.0}


async def test_records_and_metrics_name_the_files_own_terms_and_tools(tmp_path: Path, make_video: MakeVideo) -> None:
    file = write(tmp_path, GOOD + "  - {name: calls, key: looked_again}\n")
    video = make_video(300)
    made_up = think(tool_call("rewind", seconds=3))
    trajectory, reward = await run(file, [CROP, made_up, answer("A")], video)
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory
    method = get_method("compose", file=file)
    info = reward_info(method, reward, SAMPLE, flagged=False)
    line = {"uid": "u", "trajectory": trajectory, "reward": info}
    metrics = rollout_metrics([Rollout.from_line(line)])
    means = {name for name in metrics if name.startswith("video_tools/compose/")}
    keys = ("score", "acc", "accuracy", "tool", "looked_again")
    assert means == {f"video_tools/compose/{key}/mean" for key in keys}
    assert metrics["video_tools/compose/looked_again/mean"] == 1.0
    assert metrics["tool/crop_video/calls_per_rollout"] == metrics["tool/unknown/calls_per_rollout"] == 1.0


def test_rows_of_other_methods_have_the_files_keys(tmp_path: Path) -> None:
    method = get_method("compose", file=write(tmp_path, GOOD + "  - {name: calls, key: looked_again}\n"))
    own = {"accuracy", "tool", "looked_again"}
    assert {*reward_info(method, zero_reward(method), SAMPLE, flagged=False)} == {*own, "score", "acc", "flagged"}
    assert own | {"temporal_iou", "ccv"} <= {*all_components([method])}
    assert "looked_again" not in all_components()


def test_a_rung_needs_a_ladder(tmp_path: Path) -> None:
    plain = get_method("compose", file="demo")
    with pytest.raises(UsageError, match=r"Compose\.rung must be None: the plan of demo is no ladder, got 2"):
        get_method("compose", file="demo", rung=2)
    assert plain.for_session(3, 4, validate=False) == plain
    file = write(tmp_path, GOOD.replace(UNIFORM, "plan: ladder"))
    with pytest.raises(UsageError, match=r"Compose\.rung must be 1 to 8, or None, got 9"):
        get_method("compose", file=file, rung=9)


def test_a_ladder_has_the_rungs_of_framemind(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD.replace(UNIFORM, "plan: ladder, low: [48, 112], high: [16, 336]"))
    ladder = get_method("compose", file=file)
    framemind = get_method("framemind", low=(48, 112), high=(16, 336))
    envelope = PixelEnvelope(28, 784, 1 << 20)
    for session_id in range(4):
        for validate in (False, True):
            own, other = (method.for_session(session_id, 4, validate) for method in (framemind, ladder))
            expected = own.plan_initial_frames(VIDEO, SAMPLE, envelope)
            assert other.plan_initial_frames(VIDEO, SAMPLE, envelope) == expected
            assert rollout_overrides(other, ladder) == ({} if validate else {"num_rungs": 4, "rung": session_id + 1})


def test_published_code_is_not_composed() -> None:
    with pytest.raises(UsageError, match=r"Compose\.compat must be 'strict'"):
        get_method("compose", compat="reference")
    with pytest.raises(TypeError, match="turns"):
        Compose(turns=3)


def test_the_most_expensive_call_is_that_of_one_of_the_tools(tmp_path: Path) -> None:
    envelope = PixelEnvelope(28, 784, 1 << 20)
    tools = "tools:\n  - {name: FrameAt, side_pixels: 56}\n  - {name: get_frame_number}"
    method = get_method("compose", file=write(tmp_path, GOOD.replace("tools:", tools)))
    crop = max_cost_call(get_method("longvt", fps=2.0, call_frames=8), VIDEO, envelope)
    assert max_cost_call(method, VIDEO, envelope) == crop and crop is not None and len(crop) == 8


def test_the_prompt_fills_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("; ".join(f"{{{name}}}" for name in PROMPT_VALUES))
    file = write(tmp_path, GOOD + "prompt: prompt.txt\n")
    told = content_text(get_method("compose", file=file).prompt(SAMPLE, VIDEO, ())[0].content)
    assert told.startswith("100.0; 0; 3; # Tools")


def test_the_class_says_what_holds_by_default() -> None:
    method = get_method("compose")
    for name in ("reward_components", "unpaid_components", "recipe_budget", "thought_tag"):
        assert getattr(type(method), name) == getattr(method, name), name
