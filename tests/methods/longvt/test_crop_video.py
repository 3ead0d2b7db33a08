"""What LongVT's tool shows, and which calls it refuses. J with a number is an acceptance case of the project."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.frame_index import awaited
from tests.turns.tagged import answer, think, tool_call
from tests.videos.files import write_video
from tests.videos.uneven import BURST, SLIDES
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import PixelEnvelope, Sample, ToolContext, ToolPlan, VideoInfo
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.methods.longvt.method import CropVideo, published_indices, segment_seconds
from verl_video_tools.methods.toolkit.frames import frame_size

INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=1920, height=1080)
SAMPLE = Sample("What?", "a scarf", "/data/videos/yard.mp4", "open")
CONTEXT = ToolContext(
    INFO, SAMPLE, PixelEnvelope(28, 784, 1 << 20), awaited(lambda seconds: min(int(seconds * 30), 2999))
)


def tool(compat: Any = "strict", **fields: Any) -> CropVideo:
    return CropVideo(
        **{"fps": 1.0, "max_frames": 128, "min_pixels": 784, "max_pixels": 50_176, **fields}, compat=compat
    )


async def plan(arguments: dict[str, Any], compat: Any = "strict") -> ToolPlan:
    return await tool(compat).plan(arguments, CONTEXT)


def indices(start: float, end: float, info: VideoInfo = INFO, fps: float = 1.0, max_frames: int = 128) -> list[int]:
    """The frames nearest to the planned times, for a constant rate."""
    times = segment_seconds(start, end, info, fps, max_frames)
    return [min(int(seconds * info.average_fps + 0.5), info.num_frames - 1) for seconds in times]


@pytest.mark.parametrize(
    ("start", "end", "frames"),
    [
        pytest.param(10, 20, [300, 333, 367, 400, 433, 467, 500, 533, 567, 600], id="ten seconds"),
        pytest.param(10, 11, [300, 330], id="one second"),
        pytest.param(10, 10.5, [300, 315], id="half a second"),
        pytest.param(10, 13, [300, 390], id="three seconds"),
        pytest.param(10, 14, [300, 340, 380, 420], id="four seconds"),
        pytest.param(10, 10.04, [300, 301], id="two frames"),
        pytest.param(95, 100, [2850, 2900, 2949, 2999], id="up to the end of the video"),
    ],
)
def test_frames_of_a_segment(start: float, end: float, frames: list[int]) -> None:
    assert indices(start, end) == frames


@pytest.mark.parametrize(
    ("duration_seconds", "max_frames", "count"),
    [(511, 512, 510), (512, 512, 512), (513, 512, 512), (1688, 512, 512), (1688, 768, 768), (0.5, 512, 2)],
)
def test_frames_of_a_whole_video(duration_seconds: float, max_frames: int, count: int) -> None:
    info = VideoInfo(duration_seconds, int(duration_seconds * 30), 30.0, 1920, 1080)
    shown = indices(0, duration_seconds, info, max_frames=max_frames)
    assert (len(shown), shown[0], shown[-1]) == (count, 0, info.num_frames - 1)


@given(st.floats(0, 100), st.floats(0, 100), st.sampled_from([0.5, 5.0, 23.976, 30.0, 240.0]), st.floats(0.1, 8.0))
def test_times_stay_inside_the_segment(start: float, end: float, rate: float, fps: float) -> None:
    start, end = sorted((start, end))
    info = VideoInfo(100.0, int(100 * rate), rate, 64, 64)
    times = segment_seconds(start, end, info, fps, 128)
    assert len(times) % 2 == 0 and 2 <= len(times) <= 128
    assert list(times) == sorted(times)
    assert all(start <= seconds <= end for seconds in times)


@pytest.mark.parametrize(
    ("times", "start", "end", "frames"),
    [
        pytest.param(SLIDES, 0.2, 1.7, [0.2, 1.7], id="motion"),
        pytest.param(SLIDES, 1.0, 12.0, [1.0, 2.0, 10.0], id="motion and slides"),
        pytest.param(SLIDES, 1.95, 6.1, [1.9, 2.0], id="the next slide begins nearer to the end"),
        pytest.param(SLIDES, 6.5, 13, [2.0, 10.0], id="the second slide begins nearer to both ends"),
        pytest.param(SLIDES, 6.5, 15, [2.0, 10.0], id="the third slide begins nearer to the end"),
        pytest.param(SLIDES, 3.0, 8.0, None, id="one slide"),
        pytest.param(BURST, 46, 47.9, [46.0, 47.9], id="up to the last frame"),
        pytest.param(BURST, 39, 46.03, [40.0, 46.0], id="between frames"),
        pytest.param([number / 30 for number in range(300)], 9.95, 10, [298 / 30, 299 / 30], id="even, the last two"),
        pytest.param([number / 30 for number in range(300)], 9.97, 10, None, id="even, the last one"),
    ],
)
async def test_frames_are_those_on_screen_in_the_segment(
    times: list[float], start: float, end: float, frames: list[float] | None, tmp_path: Path
) -> None:
    path = write_video(tmp_path / "video.mp4", times_seconds=times)
    method = get_method("longvt", initial_frames=24)
    sample = Sample("What?", "B", str(path), "mc", options={"A": "a hat", "B": "a scarf"})
    script = [think(tool_call("crop_video", start_time=start, end_time=end)), answer("B")]
    trajectory = await execute(method, sample, script)
    initial_frames = [frame.index for frame in trajectory.initial_frames]
    assert initial_frames == sorted(set(initial_frames)) and (initial_frames[0], initial_frames[-1]) == (
        0,
        len(times) - 1,
    )
    (call,) = trajectory.calls()
    if frames is None:
        assert "there are no two frames" in str(call.error)
        return
    shown = call.frames
    assert [frame.timestamp_seconds for frame in shown] == pytest.approx(frames, abs=1e-3)
    assert all(frame.timestamp_seconds <= end for frame in shown)
    assert shown[0].timestamp_seconds >= start or times[shown[0].index + 1] > start


async def test_a_long_segment_shows_the_most_frames() -> None:
    request = (await plan({"start_time": 0, "end_time": 100})).frames
    assert request is not None and len(request) == 100
    capped = await tool(max_frames=16).plan({"start_time": 0, "end_time": 100}, CONTEXT)
    assert capped.frames is not None and len(capped.frames) == 16


@pytest.mark.parametrize(
    ("rate", "start", "end", "seconds"),
    [
        # A frame begins every five seconds. An even number of those on screen is shown: of three, two.
        (0.2, 10, 20, [10.0, 20.0]),
        (0.2, 0, 15, [0.0, 5.0, 10.0, 15.0]),
        (0.2, 3, 24.9, [3.0, 10.3, 17.6, 24.9]),  # frames 0 to 4
        (0.2, 3, 29, [3.0, 7.4, 11.8, 16.2, 20.6, 25.0]),  # frames 0 to 5, the last of which begins at 25 s
        (0.5, 4, 10, [4.0, 6.0, 8.0, 10.0]),
        (1.0, 4, 7, [4.0, 5.0, 6.0, 7.0]),
    ],
)
async def test_no_more_frames_are_asked_for_than_the_segment_has(
    rate: float, start: float, end: float, seconds: list[float]
) -> None:
    info = VideoInfo(duration_seconds=30.0, num_frames=int(30 * rate), average_fps=rate, width=64, height=36)
    last = info.num_frames - 1
    context = ToolContext(info, SAMPLE, CONTEXT.envelope, awaited(lambda time: min(int(time * rate), last)))
    planned = await tool().plan({"start_time": start, "end_time": end}, context)
    assert planned.frames is not None and planned.frames.seconds == pytest.approx(seconds, abs=1e-3)


async def test_the_plan_repeats_the_segment() -> None:
    assert (await plan({"start_time": 12, "end_time": 18.5})).result == {"start_time": 12.0, "end_time": 18.5}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"start_time": -1, "end_time": 5}, "out_of_range", id="before the start"),
        pytest.param({"start_time": 5, "end_time": 5}, "reversed_segment", id="empty"),
        pytest.param({"start_time": 9, "end_time": 5}, "reversed_segment", id="reversed"),
        pytest.param({"start_time": 100, "end_time": 101}, "out_of_range", id="starts at the end"),
        pytest.param({"start_time": 90, "end_time": 100.5}, "out_of_range", id="beyond the end"),
        pytest.param({"end_time": 5}, "malformed_call", id="no start"),
        pytest.param({"start_time": 5}, "malformed_call", id="no end"),
        pytest.param({"start_time": 1, "end_time": 5, "video_path": ""}, "malformed_call", id="empty path"),
        pytest.param({"start_time": 1, "end_time": 5, "video_path": "/etc/passwd"}, "wrong_video", id="other file"),
        pytest.param(
            {"start_time": 1, "end_time": 5, "video_path": "/other/yard.mp4"}, "wrong_video", id="other folder"
        ),
        pytest.param({"start_time": 1, "end_time": 5, "video_path": 7}, "malformed_call", id="path is a number"),
        pytest.param({"start_time": True, "end_time": 5}, "malformed_call", id="a truth value"),
        pytest.param({"start_time": [1], "end_time": 5}, "malformed_call", id="a list"),
        pytest.param({"start_time": "soon", "end_time": 5}, "malformed_call", id="words"),
        pytest.param({"start_time": 10**400, "end_time": 5}, "malformed_call", id="a number beyond floats"),
        pytest.param({"start_time": float("nan"), "end_time": 5}, "malformed_call", id="not a number"),
        pytest.param({"start_time": 10, "end_time": 10.03}, "segment_too_short", id="less than a frame"),
        pytest.param({"start_time": 99.98, "end_time": 100}, "segment_too_short", id="inside the last frame"),
    ],
)
async def test_refused_calls(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(CallRejected) as rejection:
        await plan(arguments)
    assert rejection.value.code is CallErrorCode(code)
    assert "yard" not in rejection.value.message or "yard" in str(arguments), "the name may give the answer away"


PATH = {"video_path": SAMPLE.video_path}


@pytest.mark.parametrize(
    ("arguments", "code", "check"),
    [
        ({"start_time": 5, "end_time": 1}, "malformed_call", "path_missing"),
        ({"end_time": 1, "video_path": ""}, "malformed_call", "start_missing"),
        ({"start_time": 5, "video_path": ""}, "malformed_call", "end_missing"),
        ({"start_time": -5, "end_time": -9, "video_path": " "}, "malformed_call", "path_empty"),
        ({"start_time": -5, "end_time": -9, "video_path": "/x"}, "out_of_range", "start_negative"),
        ({"start_time": 500, "end_time": 500, "video_path": "/x"}, "reversed_segment", "end_not_after_start"),
        ({"start_time": 500, "end_time": 600, "video_path": "/etc/passwd"}, "wrong_video", "file_missing"),
        ({"start_time": 1, "end_time": 5, "video_path": "yard.mp4"}, "wrong_video", "file_missing"),
        ({"start_time": 100, "end_time": 600, **PATH}, "out_of_range", "start_beyond"),
        ({"start_time": 90, "end_time": 100.01, **PATH}, "out_of_range", "end_beyond"),
        ({"start_time": 10, "end_time": 10.03, **PATH}, "segment_too_short", "too_short"),
        ({"start_time": "nan", "end_time": 5, **PATH}, "segment_too_short", "too_short"),
        ({"start_time": "soon", "end_time": 5, **PATH}, "malformed_call", "wrong_types"),
        ({"start_time": None, "end_time": 5, **PATH}, "malformed_call", "wrong_types"),
        ({"start_time": [1], "end_time": 5, **PATH}, "malformed_call", "wrong_types"),
        ({"start_time": 1, "end_time": 5, "video_path": None}, "malformed_call", "wrong_types"),
        ({"start_time": 10**400, "end_time": 5, **PATH}, "malformed_call", "wrong_types"),
    ],
)
async def test_published_checks_in_their_order(arguments: dict[str, Any], code: str, check: str) -> None:
    """Section b.3 of the specification; each call also fails what is checked later."""
    with pytest.raises(CallRejected) as rejection:
        await plan(arguments, "reference")
    assert rejection.value.code is CallErrorCode(code)
    assert rejection.value.message.startswith(f"{check}: ")
    assert "yard" not in rejection.value.message


@given(st.floats(0, 99), st.floats(0.04, 100), st.sampled_from([0.5, 5.0, 23.976, 30.0, 240.0]), st.integers(2, 128))
def test_published_frames_are_those_of_torch(start: float, length: float, rate: float, most: int) -> None:
    """Section b.4: ``linspace(start_frame, end_frame, n).round()``, an even number, both ends included."""
    info = VideoInfo(100.0, int(100 * rate), rate, 64, 64)
    shown = published_indices(start, start + length, info, 1.0, most)
    first, last = math.ceil(start * rate), min(math.floor((start + length) * rate), info.num_frames - 1)
    if first >= last:
        assert shown == ()
        return
    assert len(shown) % 2 == 0 and 2 <= len(shown) <= most and (shown[0], shown[-1]) == (first, last)
    assert list(shown) == torch.linspace(first, last, len(shown)).round().long().tolist()
    wanted = max(2.0, min((last - first + 1) / rate, most // 2 * 2, (last - first + 1) // 2 * 2))
    assert len(shown) == int(wanted) // 2 * 2


async def test_the_end_that_a_refusal_names_may_be_asked_for() -> None:
    info = VideoInfo(duration_seconds=12.996, num_frames=390, average_fps=30.0, width=1920, height=1080)
    context = ToolContext(info, SAMPLE, CONTEXT.envelope, CONTEXT.index_at)
    with pytest.raises(CallRejected, match=r"after the end of the video \(12\.99 seconds\)"):
        await tool().plan({"start_time": 5, "end_time": 13.1}, context)
    assert (await tool().plan({"start_time": 5, "end_time": 12.99}, context)).frames is not None


async def test_the_last_label_of_the_initial_frames_may_be_asked_for() -> None:
    """LongVT rounds times to tenths of a second: the last frame's can be after the end of the video."""
    info = VideoInfo(duration_seconds=16.79, num_frames=503, average_fps=29.97, width=1920, height=1080)
    context = ToolContext(info, SAMPLE, CONTEXT.envelope, CONTEXT.index_at)
    plan = await tool().plan({"start_time": 5, "end_time": 16.8}, context)
    assert plan.frames is not None and plan.frames.seconds is not None
    assert max(plan.frames.seconds) <= 16.79 and plan.result == {"start_time": 5.0, "end_time": 16.79}


@pytest.mark.parametrize("path", [None, "/data/videos/yard.mp4", "yard.mp4", "file:///data/videos/yard.mp4"])
async def test_ways_of_naming_the_bound_video(path: str | None) -> None:
    assert (await plan({"start_time": 1, "end_time": 5, "video_path": path})).frames is not None


async def test_numbers_as_text_are_read_as_published_only() -> None:
    arguments = {"start_time": "10", "end_time": "20.5"}
    with pytest.raises(CallRejected, match="start_time must be a number of seconds, got '10'"):
        await plan(arguments)
    named = {**arguments, "video_path": SAMPLE.video_path}
    assert (await plan(named, "reference")).result == {"start_time": 10.0, "end_time": 20.5}


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        (1920, 1080, (280, 168)),
        (640, 480, (252, 168)),
        (720, 720, (224, 224)),
        (1080, 1920, (168, 280)),
        (20, 20, (28, 28)),
    ],
)
def test_sizes(width: int, height: int, size: tuple[int, int]) -> None:
    info = VideoInfo(10.0, 300, 30.0, width, height)
    for envelope in (PixelEnvelope(), PixelEnvelope(28, 784, 1 << 24)):
        assert frame_size(info, 784, 50_176, envelope) == size


def test_sizes_follow_the_processor() -> None:
    assert frame_size(INFO, 784, 50_176, PixelEnvelope(32, 1024, 1 << 24)) == (288, 160)
    assert frame_size(INFO, 784, 50_176, PixelEnvelope(28, 784, 3136)) == (56, 28)
