"""What a LongVT rollout is shown with `compat="reference"`: order, tags and phrases that the specification quotes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.videos.files import write_video
from verl_video_tools.core.types import FrameRecord, ImagePart, Sample, VideoInfo, content_text
from verl_video_tools.methods import get_method
from verl_video_tools.replay import replay

QUESTION = "What does the driver wave with?"
SUCCESS = "The tool executed successfully. Here are the processed result"
FAILURE = "Tool execution failed: Error executing tool crop_video: "
INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_video(tmp_path_factory.mktemp("videos") / "yard.mp4", num_frames=3000, fps=30))


def call(start: Any, end: Any, path: str) -> str:
    arguments = {"video_path": path, "start_time": start, "end_time": end}
    return f'<tool_call>{{"name": "crop_video", "arguments": {json.dumps(arguments)}}}</tool_call>'


def observations(video: str, *calls: str, **settings: Any) -> list[str]:
    turns = [*(f"<think>there</think>{text}" for text in calls), "<think>so</think><answer>B</answer>"]
    result = replay("longvt", video, QUESTION, "B", turns, settings={"compat": "reference", **settings})
    return [turn["observation"] for turn in result["turns"] if turn["observation"] is not None]


def user_message(**settings: Any) -> str:
    images = [ImagePart(FrameRecord(index, index / 30, 84, 56)) for index in (0, 30)]
    method = get_method("longvt", compat="reference", **settings)
    return content_text(method.prompt(Sample(QUESTION, "x", "/data/yard.mp4", "open"), INFO, images)[1].content)


def test_frames_stand_before_the_question_and_the_path_after_it() -> None:
    assert user_message() == f"<image><image>{QUESTION}\n The Video path for this video is: /data/yard.mp4"
    system = get_method("longvt", compat="reference").prompt(Sample("?", "x", "v", "open"), INFO, [])[0]
    assert '"video_path"' in content_text(system.content)


@pytest.mark.slow
def test_pictures_then_the_fixed_sentence(video: str) -> None:
    (shown,) = observations(video, call(10, 12, video))
    assert shown == f"<tool_response>\n<image><image>{SUCCESS}</tool_response>"


def test_replies_to_several_calls_stand_side_by_side(video: str) -> None:
    (shown,) = observations(video, call(10, 12, video) + call(200, 300, video))
    refused = "start_time 200.0 is not before the end of the video, 100.00 s"
    assert shown == (
        f"<tool_response>\n<image><image>{SUCCESS}</tool_response><tool_response>\n{FAILURE}{refused}</tool_response>"
    )


REASONS = {
    "path_missing": "no path",
    "start_missing": "no start",
    "end_missing": "no end",
    "path_empty": "empty",
    "start_negative": "from {start}",
    "end_not_after_start": "({end}) ({start})",
    "file_missing": "lost: {path}",
    "start_beyond": "({start}s) ({duration}s)",
    "end_beyond": "({end}s) ({duration}s)",
    "too_short": "at {path}",
    "wrong_types": "got {arguments}",
}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"start_time": 1, "end_time": 2}, "no path"),
        ({"video_path": "PATH", "end_time": 2}, "no start"),
        ({"video_path": "PATH", "start_time": 2}, "no end"),
        ({"video_path": "", "start_time": 1, "end_time": 2}, "empty"),
        ({"video_path": "PATH", "start_time": -1, "end_time": 2}, "from -1.0"),
        ({"video_path": "PATH", "start_time": "7", "end_time": 2.5}, "(2.5) (7.0)"),
        ({"video_path": "/x.mp4", "start_time": 1, "end_time": 2}, "lost: /x.mp4"),
        ({"video_path": "PATH", "start_time": 100, "end_time": 200}, "(100.0s) (100.00s)"),
        ({"video_path": "PATH", "start_time": 1, "end_time": 100.5}, "(100.5s) (100.00s)"),
        ({"video_path": "PATH", "start_time": 10, "end_time": 10.03}, "at PATH"),
        ({"video_path": 7}, "got {'video_path': 7}"),
    ],
)
def test_templates_file_restores_the_sentences(
    arguments: dict[str, Any], told: str, video: str, tmp_path: Path
) -> None:
    path = tmp_path / "released.toml"
    templates = {"user": "{frames}{question} Think first.\n Path: {path}", "refusal": "Failed: {error}!", **REASONS}
    path.write_text("\n".join(f"{name} = {json.dumps(text)}" for name, text in templates.items()))
    text = json.dumps(arguments).replace('"PATH"', json.dumps(video))
    written = f'<tool_call>{{"name": "crop_video", "arguments": {text}}}</tool_call>'
    assert observations(video, written, templates_file=str(path)) == [f"Failed: {told.replace('PATH', video)}!"]
    assert user_message(templates_file=str(path)) == f"<image><image>{QUESTION} Think first.\n Path: /data/yard.mp4"
