"""Our tools in verl's own tool loop, each tool alone. No Ray and no vLLM."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from tests.verl_plugin.stock_tools.shown import ZOOM, numbers
from verl_video_tools.core.errors import UsageError
from verl_video_tools.tools.stock import (
    ChooseFramesTool,
    ClipSampleTool,
    FrameAtTool,
    GetFrameNumberTool,
    UniformSampleTool,
    VideoClipTool,
    VideoZoomTool,
)
from verl_video_tools.verl_plugin import stock_tools as stock


async def call(tool: BaseTool, arguments: Any, video: Path | str | None) -> tuple[ToolResponse, float, dict[str, Any]]:
    """One call as verl's loop makes it."""
    create_kwargs = {} if video is None else {"video_path": str(video)}
    instance_id, _ = await tool.create(create_kwargs=create_kwargs)
    try:
        return await tool.execute(instance_id, arguments, agent_data=None)
    finally:
        await tool.release(instance_id)


async def test_choose_frames_shows_the_frames_and_lists_them_in_order(video: Path) -> None:
    tool = ChooseFramesTool(config={"type": "native"})
    response, reward, metrics = await call(tool, {"start_frame": 100, "end_frame": 200}, video)
    assert numbers(response.image) == ZOOM
    assert {image.size for image in response.image} == {(96, 64)}
    assert response.text == "Shown above, in order: " + ", ".join(
        f"frame {index} ({index / 30:.2f} s)" for index in ZOOM
    )
    assert reward == 0.0
    assert metrics == {}


async def test_get_frame_number_answers_in_a_sentence(video: Path) -> None:
    tool = GetFrameNumberTool(config={"type": "native"})
    response, _, _ = await call(tool, {"time": "0:05"}, video)
    assert response.text == "Frame number at time 0:05 is: 150."
    assert response.image is None


async def test_video_zoom_shows_the_frames_and_lists_their_times(video: Path) -> None:
    tool = VideoZoomTool(config={"type": "native", "call_frames": 4})
    response, _, _ = await call(tool, {"segment": [4, 6], "fps": 2}, video)
    assert numbers(response.image) == [120, 140, 160, 180]
    assert response.text == "Shown above, in order: 4.00 s, 4.67 s, 5.33 s, 6.00 s"
    response, _, _ = await call(tool, {"segment": [4, 6], "fps": 3}, video)
    assert response.text == (
        "too_many_frames: 3 fps over [4, 6] are 6 frames; a zoom shows at most 4: shorten the segment or lower fps"
    )


async def test_framemind_shows_frames_and_lists_their_times(video: Path) -> None:
    response, _, _ = await call(FrameAtTool(config={"type": "native"}), {"t": 4.99}, video)
    assert (numbers(response.image), response.text) == ([150], "Shown above, in order: 5.00 s")
    assert [image.size for image in response.image or []] == [(448, 448)]
    clip = VideoClipTool(config={"type": "native", "min_call_frames": 3, "call_frames": 3})
    response, _, _ = await call(clip, {"t_start": 2, "t_end": 4}, video)
    assert (numbers(response.image), response.text) == ([60, 90, 120], "Shown above, in order: 2.00 s, 3.00 s, 4.00 s")


async def test_uniform_sample_shows_the_frames_and_lists_them(video: Path) -> None:
    response, _, _ = await call(UniformSampleTool(config={"type": "native"}), {"start_frame": 0, "end_frame": 8}, video)
    assert numbers(response.image) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert response.text.startswith("Shown above, in order: frame 0 (0.00 s), frame 1 (0.03 s), ")


async def test_clip_sample_asks_the_retriever_of_its_config(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class LastFirst:
        async def best_frames(
            self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
        ) -> list[int]:
            assert (video_path, text) == (str(video), "dog")
            return list(candidates)[::-1][:num_frames]

    tool = ClipSampleTool(config={"type": "native", "clip_frames": 2, "retrieval": {"model": "encoder"}})
    monkeypatch.setattr("verl_video_tools.verl_plugin.retrieval_actor.connect", lambda config: LastFirst())
    response, _, _ = await call(tool, {"start_frame": 100, "end_frame": 200, "prompt": "dog"}, video)
    assert numbers(response.image) == [198, 199]
    assert response.text == "Shown above, in order: frame 198 (6.60 s), frame 199 (6.63 s)"


async def test_clip_sample_without_a_retriever_says_so(video: Path, caplog: pytest.LogCaptureFixture) -> None:
    tool = ClipSampleTool(config={"type": "native"})
    response, _, _ = await call(tool, {"start_frame": 100, "end_frame": 200, "prompt": "dog"}, video)
    assert (response.text, response.image) == ("retrieval_error: frames could not be searched", None)
    assert "no retriever is set up" in caplog.text


@pytest.mark.parametrize(
    ("tool_class", "arguments", "error"),
    [
        (FrameAtTool, {"t": 11}, "out_of_range: t=11 is outside the video, from 0 to 10.00 seconds"),
        (VideoClipTool, {"t_start": 5, "t_end": 4}, "reversed_segment: "),
        (UniformSampleTool, {"start_frame": 0, "end_frame": 7}, "segment_too_short: "),
        (ClipSampleTool, {"start_frame": 0, "end_frame": 7}, "malformed_call: prompt"),
        (ChooseFramesTool, {"start_frame": 200, "end_frame": 100}, "reversed_segment: "),
        (ChooseFramesTool, {"start_frame": 100, "end_frame": 301}, "out_of_range: "),
        (ChooseFramesTool, {"start_frame": 100, "end_frame": 108}, "segment_too_short: "),
        (ChooseFramesTool, {"start_frame": 100}, "malformed_call: end_frame"),
        (ChooseFramesTool, {"start_frame": "100", "end_frame": 200}, "malformed_call: start_frame"),
        (ChooseFramesTool, [100, 200], "malformed_call: arguments must be a JSON object, got [100, 200]"),
        (ChooseFramesTool, "100-200", "malformed_call: "),
        (GetFrameNumberTool, {"time": "0:11"}, "out_of_range: "),
        (GetFrameNumberTool, {"time": "5 s"}, "malformed_call: "),
        (GetFrameNumberTool, {"time": 5}, "malformed_call: "),
        (GetFrameNumberTool, {}, "malformed_call: "),
        (VideoZoomTool, {"segment": [4, 2], "fps": 2}, "reversed_segment: "),
        (VideoZoomTool, {"segment": [4, 12], "fps": 1}, "out_of_range: segment [4, 12] leaves the video, which lasts"),
        (VideoZoomTool, {"segment": [0, 10], "fps": 2}, "too_many_frames: 2 fps over [0, 10] are 20 frames; a zoom"),
        (VideoZoomTool, {"segment": 4, "fps": 2}, "malformed_call: segment"),
        (VideoZoomTool, {"segment": [2, 4]}, "malformed_call: fps"),
    ],
)
async def test_a_refused_call_is_answered_with_its_error(
    tool_class: type[BaseTool], arguments: Any, error: str, video: Path
) -> None:
    response, reward, _ = await call(tool_class(config={"type": "native"}), arguments, video)
    assert response.text.startswith(error)
    assert (response.image, reward) == (None, 0.0)


async def test_the_model_cannot_name_the_video(video: Path, slow_video: Path) -> None:
    arguments = {"start_frame": 100, "end_frame": 200, "video_path": str(slow_video)}
    response, _, _ = await call(ChooseFramesTool(config={"type": "native"}), arguments, video)
    assert "frame 101 (3.37 s)" in response.text, "3.37 s is the time in the bound video, 10.10 s in the other"


@pytest.mark.parametrize("tool_class", [ChooseFramesTool, GetFrameNumberTool])
async def test_a_missing_video_is_an_error_text_without_its_path(
    tool_class: type[BaseTool], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "answer_is_b.mp4"
    response, _, _ = await call(tool_class(config={"type": "native"}), {}, missing)
    assert response.text == "video_error: the video cannot be read"
    assert str(missing) in caplog.text, "who runs the training needs the path"


async def test_a_row_without_a_video_and_a_released_call_are_error_texts(
    video: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tool = GetFrameNumberTool(config={"type": "native"})
    response, _, _ = await call(tool, {"time": "0:05"}, None)
    assert response.text == "video_error: no video belongs to this question"
    assert "tools_kwargs.get_frame_number.create_kwargs.video_path" in caplog.text

    instance_id, _ = await tool.create(create_kwargs={"video_path": str(video)})
    await tool.release(instance_id)
    response, _, _ = await tool.execute(instance_id, {"time": "0:05"})
    assert response.text == "video_error: no video belongs to this question"


async def test_a_missed_deadline_is_an_error_text(video: Path, tmp_path: Path) -> None:
    """Of a file of its own: frames that another test has decoded may be there before the clock is looked at."""
    tool = ChooseFramesTool(config={"type": "native", "tool_deadline_seconds": 1e-6})
    unread = shutil.copy(video, tmp_path / "unread.mp4")
    response, _, _ = await call(tool, {"start_frame": 100, "end_frame": 200}, unread)
    assert response.text == "deadline: the frames were not ready in time"


async def test_a_bug_is_logged_and_does_not_reach_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(stock.RolloutVideos, "open", broken)
    response, _, _ = await call(GetFrameNumberTool(config={"type": "native"}), {"time": "0:05"}, "clip.mp4")
    assert response.text == "video_error: the tool failed unexpectedly"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "planted" in caplog.text


async def test_config_takes_the_fields_of_the_method(video: Path) -> None:
    tool = ChooseFramesTool(config={"type": "native", "initial_frames": 3, "call_frames": 3, "box": [48, 48]})
    response, _, _ = await call(tool, {"start_frame": 100, "end_frame": 200}, video)
    assert numbers(response.image) == [101, 150, 199]
    assert {image.size for image in response.image} == {(48, 32)}
    with pytest.raises(UsageError, match="num_frame'"):
        ChooseFramesTool(config={"type": "native", "num_frame": 3})


def test_a_schema_of_the_users_own_may_not_rename_the_tool() -> None:
    function: dict[str, Any] = {
        "name": "choose_frames",
        "description": "Own words.",
        "parameters": {"type": "object", "properties": {"start_frame": {"type": "integer"}}, "required": []},
    }
    own = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})
    assert ChooseFramesTool({"type": "native"}, own).tool_schema.function.description == "Own words."
    renamed = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": {**function, "name": "zoom"}})
    with pytest.raises(UsageError, match="'choose_frames', got 'zoom'"):
        ChooseFramesTool({"type": "native"}, renamed)
