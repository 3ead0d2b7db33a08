"""Which frames `Grid` puts into its picture, at which cost, and which calls it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.toolkit.contexts import context
from tests.methods.toolkit.test_zoom import PROCESSORS
from verl_video_tools.core.errors import CallErrorCode, CallRejected, UsageError
from verl_video_tools.core.types import FrameRecord, FrameRequest, PixelEnvelope, Tile, VideoInfo
from verl_video_tools.methods.toolkit import Grid, picture_label
from verl_video_tools.video import envelope_of, request_tokens

INFO = context().info


async def planned(tool: Grid, arguments: Any, **of: Any) -> FrameRequest:
    plan = await tool.plan(arguments, context(**of))
    assert plan.frames is not None
    return plan.frames


@pytest.mark.parametrize(
    ("arguments", "indices", "grid"),
    [
        ({"start_time": 10, "end_time": 18}, (300, 330, 360, 390, 420, 450, 480, 510, 540), (3, 3)),
        ({"start_time": 10, "end_time": 18, "num_frames": 5}, (300, 360, 420, 480, 540), (3, 2)),
        ({"start_time": 10, "end_time": 18, "num_frames": 2}, (300, 540), (2, 1)),
        ({"start_time": 10, "end_time": 10}, (300,), (1, 1)),
        ({"start_time": 0, "end_time": 0.1}, (0, 1, 2, 3), (3, 2)),  # all that there are
        ({"start_time": 99.9, "end_time": 100}, (2997, 2998, 2999), (3, 1)),
        ({"start_time": 99.9, "end_time": 100.04}, (2997, 2998, 2999), (3, 1)),  # the rounded label of the end
        ({"start_time": 0, "end_time": 0.1, "num_frames": None}, (0, 1, 2, 3), (3, 2)),  # null: left out
    ],
)
async def test_frames_are_spread_over_the_span(arguments: Any, indices: tuple[int, ...], grid: tuple[int, int]) -> None:
    request = await planned(Grid(), arguments)
    assert (request.indices, request.grid, len(request)) == (indices, grid, 1)
    assert request.width % (28 * grid[0]) == request.height % (28 * grid[1]) == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"end_time": 5}, "malformed_call: start_time"),
        ({"start_time": 5, "end_time": 101}, "out_of_range: end_time 101 is outside the video"),
        ({"start_time": -5, "end_time": 10}, "out_of_range: start_time -5"),
        ({"start_time": 6, "end_time": 5}, "reversed_segment: the part ends at 5 s, before its start at 6 s"),
        (
            {"start_time": 5, "end_time": 6, "num_frames": 10},
            "too_many_frames: 10 frames are too many; a grid shows at",
        ),
        ({"start_time": 5, "end_time": 6, "num_frames": 0}, "malformed_call: num_frames must be 1 or more, got 0"),
        ({"start_time": 5, "end_time": 6, "num_frames": 2.5}, "malformed_call: num_frames"),
        ({"start_time": 5, "end_time": 6, "num_frames": True}, "malformed_call: num_frames"),
    ],
)
async def test_refusals(arguments: Any, error: str) -> None:
    with pytest.raises(CallRejected) as refused:
        await Grid().plan(arguments, context())
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(16, 2000),
    height=st.integers(16, 2000),
    columns=st.integers(1, 5),
    max_frames=st.integers(1, 12),
    count=st.integers(1, 12),
    bounds=st.sampled_from([None, (4096, 150_000), (3136, 3136), (1, 12_000)]),
)
async def test_the_picture_costs_what_the_processor_makes_of_it(
    name: str, width: int, height: int, columns: int, max_frames: int, count: int, bounds: tuple[int, int] | None
) -> None:
    processor = PROCESSORS[name]
    kwargs = {} if bounds is None else {"min_pixels": bounds[0], "max_pixels": max(bounds[1], 4096)}
    envelope = envelope_of(processor, kwargs)
    tool = Grid(columns=columns, max_frames=max_frames)
    arguments = {"start_time": 1, "end_time": 9, "num_frames": min(count, max_frames)}
    try:
        request = await planned(tool, arguments, width=width, height=height, envelope=envelope)
    except CallRejected as refused:  # more frames than such pictures have cells, or too long a row of them
        assert refused.code == CallErrorCode.TOO_MANY_FRAMES and count > 1
        return
    picture = np.zeros((request.height, request.width, 3), dtype=np.uint8)
    grid_THW = processor(picture, return_tensors="pt", **kwargs)["image_grid_thw"][0]
    assert (int(grid_THW[2]) * processor.patch_size, int(grid_THW[1]) * processor.patch_size) == (
        request.width,
        request.height,
    )
    tokens = int(grid_THW.prod()) // processor.merge_size**2
    assert request_tokens(request, envelope.factor) == tokens
    info = VideoInfo(100.0, 3000, 30.0, width, height)
    assert tokens <= request_tokens(tool.most_expensive_call(info, envelope), envelope.factor)


async def test_frames_that_fit_into_no_picture_are_refused() -> None:
    small = PixelEnvelope(28, 3136, 4 * 28 * 28)
    with pytest.raises(CallRejected, match="too_many_frames: 9 frames fit into no picture of 3136 to 3136 pixels"):
        await Grid().plan({"start_time": 0, "end_time": 9}, context(envelope=small))
    assert (await planned(Grid(), {"start_time": 0, "end_time": 9, "num_frames": 2}, envelope=small)).grid == (2, 1)
    assert Grid().most_expensive_call(INFO, small).width * Grid().most_expensive_call(INFO, small).height == 3136


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"columns": 0}, "columns must be at least 1"),
        ({"max_frames": 0}, "max_frames must be at least 1"),
        ({"max_pixels": 9000}, "max_pixels must be at least 9216 with so many frames"),
    ],
)
def test_fields_out_of_range(fields: dict[str, int], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Grid(**fields)


def test_the_label_tells_the_times_in_reading_order() -> None:
    record = FrameRecord(30, 1.0, 84, 56, tiles=(Tile(30, 1.0), Tile(45, 1.5), Tile(60, 2.0)))
    assert picture_label(record, INFO) == "row by row: 1.00 s, 1.50 s, 2.00 s"
    assert picture_label(FrameRecord(30, 1.0, 84, 56), INFO) == "1.00 s"
