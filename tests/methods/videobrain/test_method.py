"""VideoBrain's prompt, initial frames, observations and settings."""

from pathlib import Path
from typing import Any

import pytest

from tests.methods.videobrain.scripted import COMPATS, QUESTION, run
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import CallError, UsageError
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    ImagePart,
    PixelEnvelope,
    Sample,
    ToolOutcome,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods import get_method
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.rollout.cost import max_cost_call


@pytest.mark.parametrize("tool_names", [["uniform_sample"], ["clip_sample"]])
def test_the_prompt_tells_of_the_tools_that_there_are(tool_names: list[str]) -> None:
    method = get_method("videobrain", tool_names=tool_names)
    system, _ = messages(tool_names=tool_names)
    missing = {"uniform_sample": "clip_sample", "clip_sample": "uniform_sample"}[tool_names[0]]
    assert tool_names[0] in system and missing not in system
    assert method.searches == (tool_names == ["clip_sample"])
    refusal = method.message_templates()["refusal"].text
    assert ("range or prompt" in refusal) == method.searches
    info = VideoInfo(100.0, 3000, 30.0, 1920, 1080)
    dearest = max_cost_call(method, info, PixelEnvelope())
    assert dearest is not None and len(dearest.indices or ()) == {"uniform_sample": 8, "clip_sample": 4}[tool_names[0]]


def messages(**fields: Any) -> tuple[str, str]:
    info = VideoInfo(100.1, 2400, 24000 / 1001, 1920, 1080)
    images = [ImagePart(FrameRecord(index, index / 24, 640, 360)) for index in (0, 160)]
    system, user = get_method("videobrain", **fields).prompt(Sample(QUESTION, "B", "/d/v.mp4", "mc"), info, images)
    assert (system.role, user.role) == ("system", "user")
    return content_text(system.content), content_text(user.content)


def test_prompt() -> None:
    system, user = messages()
    facts = "The video has 2400 frames at 23.976 frames per second."
    assert user == f"{QUESTION}\n\n{facts}\n\nframe 0: <image>\nframe 160: <image>"
    for phrase in ("you see 16 frames", "Shows 8 frames", "the best 4", "at most 5 in all"):
        assert phrase in system
    assert "{call_frames}" not in system and "/d/" not in system + user


def test_the_prompts_examples_follow_their_own_grammar() -> None:
    system, _ = messages()
    texts = system.split("Example of a turn that ")[1:]
    samples, searches, ends = (VideoBrain().parse("\n".join(text.split("\n\n")[0].splitlines()[1:])) for text in texts)
    assert all(turn.well_formed for turn in (samples, searches, ends))
    assert [samples.calls[0].name, searches.calls[0].name, ends.answer] == ["uniform_sample", "clip_sample", "C"]


def test_the_prompt_says_nothing_of_the_reward() -> None:
    assert "cost" not in "".join(messages())


IMAGE = ImagePart(FrameRecord(7, 0.25, 32, 32))


@pytest.mark.parametrize("turns_left", [3, 1])
def test_observations(turns_left: int) -> None:
    observe = get_method("videobrain").observe
    good = observe([ToolOutcome(CallRecord("uniform_sample", {}, ok=True), (IMAGE, IMAGE))], turns_left)
    assert content_text(good).endswith("\nframe 7: <image>\nframe 7: <image>")
    bad = observe(
        [ToolOutcome(CallRecord("x", {}, ok=False, error=CallError("unknown_tool", "no tool x")))], turns_left
    )
    assert content_text(bad).startswith("Error: unknown_tool: no tool x\n")
    for content in (good, bad):
        assert ("No call is left" in content_text(content)) is (turns_left == 1)


@pytest.mark.parametrize("code", ["video_error", "deadline", "retrieval_error"])
def test_a_failure_is_told_without_the_files_name(code: str) -> None:
    record = CallRecord("clip_sample", {}, ok=False, error=CallError(code, "cannot read /data/goal.mp4"))
    text = content_text(get_method("videobrain").observe([ToolOutcome(record)], 2))
    assert text.startswith(f"Error: {code}: ") and "/data" not in text


def test_prompt_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text('{max_calls} calls {"name": 1}')
    assert messages(prompt_file=str(path))[0] == '5 calls {"name": 1}'


@COMPATS
async def test_the_initial_frames(make_video: MakeVideo, compat: str) -> None:
    trajectory, _ = await run(make_video(), [], compat)
    expected = [0, 199, 399, 599, 799, 999, 1199, 1399, 1599, 1799, 1999, 2199, 2399, 2599, 2799, 2999]
    assert [frame.index for frame in trajectory.initial_frames] == expected


@pytest.mark.parametrize(
    ("native", "factor", "fit", "stretched"),
    [
        ((1920, 1080), 1, (640, 360), (640, 360)),
        ((1080, 1920), 1, (202, 360), (640, 360)),  # upright: squashed as published
        ((320, 180), 1, (320, 180), (640, 360)),
        ((1920, 1080), 32, (640, 352), (640, 352)),  # Qwen3-VL: 220 tokens
        ((1920, 1080), 28, (644, 364), (644, 364)),
    ],
)
def test_sizes(native: tuple[int, int], factor: int, fit: tuple[int, int], stretched: tuple[int, int]) -> None:
    info = VideoInfo(10.0, 300, 30.0, *native)
    sample = Sample("?", "B", "v.mp4", "mc")
    for fields, size in (({}, fit), ({"aspect": "stretch"}, stretched), ({"compat": "reference"}, stretched)):
        look = get_method("videobrain", **fields).plan_initial_frames(info, sample, PixelEnvelope(factor=factor))
        assert (look.width, look.height) == size


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_turns": 0}, "VideoBrain.max_turns must be at least 1, got 0"),
        ({"initial_frames": 0}, "VideoBrain.initial_frames must be at least 1, got 0"),
        ({"clip_frames": 129}, "VideoBrain.clip_frames must be at most 128, the candidates of a short range, got 129"),
        ({"direct_behavior": [1, 2, 3]}, "VideoBrain.direct_behavior takes"),
        ({"aspect": "crop"}, "aspect"),
        ({"tool_names": []}, r"tool_names must be one or both of uniform_sample, clip_sample, got \(\)"),
        ({"tool_names": ["clip_sample", "clip_sample"]}, "tool_names must be one or both"),
        ({"tool_names": ["choose_frames"]}, "VideoBrain.tool_names takes"),
    ],
)
def test_impossible_fields(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        get_method("videobrain", **fields)
