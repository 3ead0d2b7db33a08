"""Which frames FrameThinker's zoom shows, at which size, and which segments it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.frame_index import awaited
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.core.types import Compat, PixelEnvelope, Sample, ToolContext, VideoInfo
from verl_video_tools.methods.framethinker.method import ChooseFrames

SHORT = ChooseFrames(num_frames=8, box=(640, 360))
LONG = ChooseFrames(num_frames=12, box=(448, 252))


def context(
    num_frames: int = 3000, width: int = 64, height: int = 36, envelope: PixelEnvelope | None = None
) -> ToolContext:
    info = VideoInfo(num_frames / 30, num_frames, 30.0, width, height)
    sample = Sample("?", "B", "video.mp4", "mc")
    return ToolContext(info, sample, envelope or PixelEnvelope(), index_at=awaited(lambda seconds: int(seconds * 30)))


def with_compat(tool: ChooseFrames, compat: Compat) -> ChooseFrames:
    return ChooseFrames(num_frames=tool.num_frames, box=tool.box, compat=compat)


async def shown(tool: ChooseFrames, start: object, end: object, num_frames: int = 3000) -> tuple[int, ...] | str:
    """Frame numbers shown, or the code of the refusal."""
    try:
        plan = await tool.plan({"start_frame": start, "end_frame": end}, context(num_frames))
    except CallRejected as rejection:
        return str(rejection.code)
    assert plan.frames is not None and plan.frames.indices is not None
    return plan.frames.indices


@pytest.mark.parametrize(
    ("tool", "start", "end", "strict", "reference"),
    [
        (SHORT, 100, 200, (101, 115, 129, 143, 157, 171, 185, 199), "same"),
        (LONG, 100, 200, (101, 109, 118, 127, 136, 145, 154, 163, 172, 181, 190, 199), "same"),
        (SHORT, 100, 109, tuple(range(101, 109)), "same"),
        (SHORT, 2991, 3000, tuple(range(2992, 3000)), "same"),
        (SHORT, 100, 108, "segment_too_short", "same"),
        (SHORT, 100, 100, "segment_too_short", "same"),
        (LONG, 100, 112, "segment_too_short", "same"),
        (LONG, 100, 113, tuple(range(101, 113)), "same"),
        (SHORT, 2992, 3000, "segment_too_short", "same"),
        (SHORT, 200, 100, "reversed_segment", "segment_too_short"),
        (SHORT, 3000, 5000, "out_of_range", "segment_too_short"),
        (SHORT, 3001, 5000, "out_of_range", "out_of_range"),
        (SHORT, 2991, 5000, "out_of_range", tuple(range(2992, 3000))),
        (SHORT, 2991, 3001, "out_of_range", tuple(range(2992, 3000))),
    ],
)
async def test_segments(
    tool: ChooseFrames, start: int, end: int, strict: tuple[int, ...] | str, reference: tuple[int, ...] | str
) -> None:
    assert await shown(tool, start, end) == strict
    assert await shown(with_compat(tool, "reference"), start, end) == (strict if reference == "same" else reference)


@pytest.mark.parametrize("start", [None, "100", 100.0, True, [100]])
async def test_a_frame_number_is_an_integer(start: object) -> None:
    assert await shown(SHORT, start, 200) == "malformed_call"


@pytest.mark.parametrize(
    ("start", "end"),
    [("a" * 5000, 200), (10**1000, 10**1001), (10**1001, 10**1000), (100, -(10**1000)), ([[0] * 999], 1)],
    ids=["text", "outside", "reversed", "too short", "list"],
)
@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_refusals_do_not_repeat_all_that_was_written(start: object, end: object, compat: Compat) -> None:
    with pytest.raises(CallRejected) as refused:
        await with_compat(SHORT, compat).plan({"start_frame": start, "end_frame": end}, context())
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_negative_frame_numbers_are_outside(compat: Compat) -> None:
    """The model is told; a plan of such frames would be an error of the video, for which a rollout does not train."""
    for start, end in ((-50, 200), (-1, 200), (-50, -10)):
        assert await shown(with_compat(SHORT, compat), start, end) == "out_of_range"


@pytest.mark.parametrize(
    ("tool", "size", "strict", "reference"),
    [
        (SHORT, (1920, 1080), (640, 360), (640, 360)),
        (LONG, (1920, 1080), (448, 252), (448, 252)),
        (LONG, (1280, 720), (448, 252), (448, 251)),
        (SHORT, (720, 1280), (202, 360), (202, 360)),
        (SHORT, (320, 240), (320, 240), (320, 240)),
    ],
)
async def test_sizes(
    tool: ChooseFrames, size: tuple[int, int], strict: tuple[int, int], reference: tuple[int, int]
) -> None:
    arguments = {"start_frame": 100, "end_frame": 200}
    for compat, expected in (("strict", strict), ("reference", reference)):
        plan = await with_compat(tool, compat).plan(arguments, context(width=size[0], height=size[1]))
        assert plan.frames is not None
        assert (plan.frames.width, plan.frames.height) == expected


async def test_the_processor_envelope_rounds_sizes() -> None:
    """640x360 costs 23 x 13 = 299 tokens on Qwen2.5-VL, as 644x364."""
    envelope = PixelEnvelope(factor=28, min_pixels=28 * 28, max_pixels=1280 * 28 * 28)
    plan = await SHORT.plan({"start_frame": 0, "end_frame": 100}, context(width=1920, height=1080, envelope=envelope))
    assert plan.frames is not None
    assert (plan.frames.width, plan.frames.height) == (644, 364)


@given(st.integers(0, 4000), st.integers(0, 4000), st.sampled_from([SHORT, LONG]))
async def test_accepted_segments_show_distinct_frames_inside(start: int, end: int, tool: ChooseFrames) -> None:
    indices = await shown(tool, start, end)
    if isinstance(indices, tuple):
        assert len(set(indices)) == tool.num_frames
        assert list(indices) == sorted(indices)
        assert start < indices[0] and indices[-1] < end <= 3000
    else:
        assert start >= 3000 or end > 3000 or end - start <= tool.num_frames
