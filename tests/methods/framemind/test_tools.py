"""What FrameMind's two tools show, and which calls they refuse. J with a number is an acceptance case."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.frame_index import awaited
from tests.videos.files import write_video
from tests.videos.uneven import SLIDES
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.core.types import FrameRequest, PixelEnvelope, Sample, ToolContext, VideoInfo
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.video import Video

INFO = VideoInfo(duration_seconds=60.0, num_frames=1800, average_fps=30.0, width=1920, height=1080)
SAMPLE = Sample("What?", "A", "/data/videos/yard.mp4", "mc")


async def look(call: dict[str, float], envelope: PixelEnvelope | None = None, **fields: Any) -> FrameRequest:
    context = ToolContext(INFO, SAMPLE, envelope or PixelEnvelope(), awaited(lambda seconds: int(seconds * 30 + 1e-6)))
    name = "FrameAt" if "t" in call else "VideoClip"
    plan = await FrameMind(**fields).tools(INFO)[name].plan(call, context)
    assert plan.frames is not None and plan.result == call
    return plan.frames


def shown(request: FrameRequest) -> list[int]:
    """Frames that the planned times mean."""
    half = 0.5 + 1e-6 if request.rounding == "nearest" else 0.0
    frames = [min(int(seconds * 30 + half), INFO.num_frames - 1) for seconds in request.seconds or ()]
    return list(dict.fromkeys(frames)) if request.unique else frames


async def clip(start: float, end: float, **fields: Any) -> list[int]:
    return shown(await look({"t_start": start, "t_end": end}, **fields))


@pytest.mark.parametrize(
    ("t", "nearest"),
    [
        pytest.param(10.0, 300, id="a whole second"),
        pytest.param(60.0, 1799, id="end"),
        pytest.param(308.5 / 30, 309, id="half way"),
        pytest.param(308.4 / 30, 308, id="before half way"),
        pytest.param(0.0, 0, id="start"),
    ],
)
async def test_frame_at(t: float, nearest: int) -> None:
    assert shown(await look({"t": t})) == [nearest]


async def test_the_nearest_frame_goes_by_real_times(tmp_path: Path) -> None:
    path = write_video(tmp_path / "uneven.mp4", times_seconds=[0, 1, 9, 10])
    with Video(path) as video:
        context = ToolContext(video.info, SAMPLE, PixelEnvelope(), awaited(video.index_at))
        tools = FrameMind().tools(video.info)
        for call, times in (({"t": 0.3}, [0.0]), ({"t": 6.0}, [9.0]), ({"t_start": 0.3, "t_end": 9.2}, [0.0, 9.0])):
            plan = await tools["FrameAt" if "t" in call else "VideoClip"].plan(call, context)
            assert plan.frames is not None
            shown_seconds = video.frames(plan.frames).timestamps_seconds.tolist()
            assert [shown_seconds[0], shown_seconds[-1]] == [times[0], times[-1]]


@pytest.mark.parametrize(("start", "end", "times"), [(27, 33, [26.0]), (30, 39, [34.0]), (1.95, 6.1, [2.0])])
async def test_a_clip_shows_nothing_that_begins_after_its_end(
    start: float, end: float, times: list[float], tmp_path: Path
) -> None:
    with Video(write_video(tmp_path / "slides.mp4", times_seconds=SLIDES)) as video:
        context = ToolContext(video.info, SAMPLE, PixelEnvelope(), awaited(video.index_at))
        plan = await FrameMind().tools(video.info)["VideoClip"].plan({"t_start": start, "t_end": end}, context)
        assert plan.frames is not None
        assert video.frames(plan.frames).timestamps_seconds.tolist() == times


async def test_a_clip_shows_each_frame_once_where_the_rate_varies(tmp_path: Path) -> None:
    times = [*range(5), *(5 + step / 30 for step in range(60))]
    with Video(write_video(tmp_path / "slow_then_fast.mp4", times_seconds=times)) as video:
        context = ToolContext(video.info, SAMPLE, PixelEnvelope(), video.index_at)
        clip = FrameMind().tools(video.info)["VideoClip"]
        plan = await clip.plan({"t_start": 0.0, "t_end": 4.0}, context)
        assert plan.frames is not None and len(plan.frames) == 8
        assert video.frames(plan.frames).indices.tolist() == [0, 1, 2, 3, 4]


async def test_a_clip_shows_what_is_there_where_the_rate_is_above_the_average(tmp_path: Path) -> None:
    """A slide every two seconds, but for one second of 30 frames: two frames a second on average."""
    times = [*range(0, 10, 2), *(10 + step / 30 for step in range(30)), *range(12, 31, 2)]
    with Video(write_video(tmp_path / "slides.mp4", times_seconds=times)) as video:
        context = ToolContext(video.info, SAMPLE, PixelEnvelope(), awaited(video.index_at))
        plan = await FrameMind().tools(video.info)["VideoClip"].plan({"t_start": 10.0, "t_end": 11.0}, context)
        assert plan.frames is not None
        indices = video.frames(plan.frames).indices.tolist()
        assert len(indices) == 8 and indices == sorted(set(indices))


@settings(max_examples=200)
@given(start=st.integers(0, 599), length=st.integers(0, 60))
async def test_the_frames_that_an_expert_expects_are_shown(start: int, length: int) -> None:
    ends = start / 10, min(start + length, 600) / 10
    assert FrameMind().video_clip().frame_numbers(*ends, INFO) == await clip(*ends)


async def test_the_label_of_the_last_frame_may_lie_beyond_the_end() -> None:
    context = ToolContext(INFO, SAMPLE, PixelEnvelope(), awaited(lambda seconds: int(seconds * 30)))
    tools = FrameMind().tools(INFO)
    for name, asked, done in (
        ("FrameAt", {"t": 60.04}, {"t": 60.0}),
        ("VideoClip", {"t_start": 58, "t_end": 60.05}, {"t_start": 58, "t_end": 60.0}),
    ):
        plan = await tools[name].plan(asked, context)
        assert plan.result == done and plan.frames is not None and shown(plan.frames)[-1] == 1799
        assert max(plan.frames.seconds or ()) == 60.0
    with pytest.raises(CallRejected, match="out_of_range"):
        await tools["FrameAt"].plan({"t": 60.06}, context)


async def test_sizes() -> None:
    for call in ({"t": 1.0}, {"t_start": 1.0, "t_end": 5.0}):
        request = await look(call)
        assert (request.width, request.height) == (448, 448)
        request = await look(call, PixelEnvelope(28, 50_176, 100_352))
        assert (request.width, request.height) == (308, 308)


@pytest.mark.parametrize(
    ("start", "end", "count"), [(10, 11, 8), (10, 14, 8), (10, 15, 10), (10, 14.75, 10), (10, 20, 20), (0, 60, 20)]
)
async def test_number_of_frames_of_a_clip(start: float, end: float, count: int) -> None:
    frames = await clip(start, end)
    assert (len(frames), frames[0], frames[-1]) == (count, start * 30, min(math.floor(end * 30 + 0.5), 1799))
    assert len(await clip(start, end, min_call_frames=20)) == 20
    assert len(await clip(start, end, call_frames=8)) == 8


async def test_clips() -> None:
    assert await clip(5, 5) == [150]
    assert await clip(0.0, 0.1) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        pytest.param(
            {"t": 61.0}, "out_of_range: t=61 is outside the video, from 0 to 60.00 seconds", id="after the end"
        ),
        pytest.param({"t": -1.0}, "out_of_range: ", id="before"),
        pytest.param(
            {"t_start": 20.0, "t_end": 15.0}, "reversed_segment: t_end=15 is before t_start=20", id="reversed"
        ),
        pytest.param({"t_start": 20.0, "t_end": 60.1}, "out_of_range: t_end", id="after"),
        pytest.param({"t": "5"}, "malformed_call: t must", id="text"),
        pytest.param({"t_start": 5.0}, "malformed_call: t_end", id="missing"),
    ],
)
async def test_refusals(call: dict[str, Any], code: str) -> None:
    with pytest.raises(CallRejected, match=code):
        await look(call)


@settings(max_examples=50)
@given(st.floats(0, 60), st.floats(0, 60))
async def test_no_frame_twice_and_none_outside(one: float, other: float) -> None:
    start, end = sorted((one, other))
    request = await look({"t_start": start, "t_end": end})
    frames = shown(request)
    assert frames == sorted(set(frames)) and 1 <= len(frames) <= 20
    assert all(0 <= seconds <= 60 for seconds in request.seconds or ())
