"""Which frame number FrameThinker's clock tells, and which times it refuses."""

import bisect

import pytest

from tests.methods.frame_index import awaited
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.core.types import PixelEnvelope, Sample, ToolContext, VideoInfo
from verl_video_tools.methods.framethinker.method import GetFrameNumber


def context(starts_seconds: list[float], duration_seconds: float) -> ToolContext:
    """A video whose frame i is shown from starts_seconds[i] on."""
    info = VideoInfo(duration_seconds, len(starts_seconds), len(starts_seconds) / duration_seconds, 64, 36)
    sample = Sample("?", "B", "video.mp4", "mc")
    return ToolContext(
        info,
        sample,
        PixelEnvelope(),
        index_at=awaited(lambda seconds: bisect.bisect_right(starts_seconds, seconds) - 1),
    )


CONSTANT = context([index / 30 for index in range(3000)], 100.0)
# One frame per second for a minute, then ten per second for a minute: 660 frames, 5.5 per second on average.
VARIABLE = context([float(second) for second in range(60)] + [60 + index / 10 for index in range(600)], 120.0)


async def told(tool: GetFrameNumber, time: object, video: ToolContext = CONSTANT) -> int | str:
    """The frame number, or the code of the refusal."""
    try:
        plan = await tool.plan({"time": time}, video)
    except CallRejected as rejection:
        return str(rejection.code)
    assert plan.frames is None
    return plan.result["frame_number"]


@pytest.mark.parametrize(
    ("time", "video", "strict", "reference"),
    [
        ("0:34", CONSTANT, 1020, 1020),
        ("00:34", CONSTANT, 1020, 1020),
        ("0:00", CONSTANT, 0, 0),
        ("1:40", CONSTANT, 2999, 3000),  # exactly the duration: the last frame is still shown
        ("1:41", CONSTANT, "out_of_range", 3030),
        ("50:00", CONSTANT, "out_of_range", 90_000),
        ("99:99", CONSTANT, "malformed_call", 181_170),
        ("0:75", CONSTANT, "malformed_call", 2250),
        ("0:5", CONSTANT, "malformed_call", 150),
        ("34", CONSTANT, "malformed_call", "malformed_call"),
        ("0:34.", CONSTANT, "malformed_call", "malformed_call"),
        ("1:02:03", CONSTANT, "malformed_call", "malformed_call"),
        ("9" * 5000 + ":00", CONSTANT, "malformed_call", "malformed_call"),
        (34, CONSTANT, "malformed_call", "malformed_call"),
        (None, CONSTANT, "malformed_call", "malformed_call"),
        ("0:34", VARIABLE, 34, 187),  # strict: the frame that is shown; reference: 34 s x 5.5 frames per second
        ("1:30", VARIABLE, 360, 495),
    ],
)
async def test_times(time: object, video: ToolContext, strict: int | str, reference: int | str) -> None:
    assert await told(GetFrameNumber(), time, video) == strict
    assert await told(GetFrameNumber(compat="reference"), time, video) == reference


@pytest.mark.parametrize("time", ["9" * 5000, ["0:34"] * 999])
async def test_refusals_do_not_repeat_all_that_was_written(time: object) -> None:
    for tool in (GetFrameNumber(), GetFrameNumber(compat="reference")):
        with pytest.raises(CallRejected) as refused:
            await tool.plan({"time": time}, CONSTANT)
        assert len(str(refused.value)) < 250


async def test_refusals_say_what_would_be_accepted() -> None:
    with pytest.raises(CallRejected, match=r"1:41 is after the end of the video \(100\.00 s\)"):
        await GetFrameNumber().plan({"time": "1:41"}, CONSTANT)
