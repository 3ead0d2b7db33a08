"""Which part `Zoom` shows, at which size and cost, and which calls it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

from tests.methods.toolkit.contexts import context
from verl_video_tools.core.errors import CallRejected, UsageError
from verl_video_tools.core.regions import frame_edges
from verl_video_tools.core.types import (
    FrameRecord,
    FrameRequest,
    PixelBox,
    PixelEnvelope,
    ShownFrame,
    ToolContext,
    VideoInfo,
)
from verl_video_tools.methods.toolkit import Zoom, picture_label
from verl_video_tools.methods.toolkit.calls import box_in_words
from verl_video_tools.video import envelope_of, request_tokens

PROCESSORS = {
    "qwen2_5_vl": Qwen2VLImageProcessor(size={"shortest_edge": 3136, "longest_edge": 12_845_056}),
    "qwen3_vl": Qwen2VLImageProcessor(patch_size=16, size={"shortest_edge": 65_536, "longest_edge": 16_777_216}),
}

INFO = context().info


async def planned(tool: Zoom, arguments: Any, **of: Any) -> FrameRequest:
    plan = await tool.plan(arguments, context(**of))
    assert plan.frames is not None and plan.frames.region is not None
    info = context(**of).info
    assert plan.result == {"box": list(plan.frames.region.in_pixels(info.width, info.height))}
    return plan.frames


@pytest.mark.parametrize(
    ("unit", "box"),
    [
        ("normalised", [0.25, 0.5, 0.5, 0.75]),
        ("thousandths", [250, 500, 500, 750]),
        ("pixels", [320, 360, 640, 540]),
    ],
)
async def test_a_box_in_every_unit(unit: Any, box: list[float]) -> None:
    request = await planned(Zoom(unit=unit), {"time": 12.5, "box": box})
    assert request.seconds == (12.5,) and len(request) == 1
    assert request.region is not None and request.region.in_pixels(1280, 720) == (320, 360, 640, 540)
    assert (request.width, request.height) == (308, 168)  # 320 x 180, in whole cells of 28
    assert box_in_words(unit) == Zoom(unit=unit).description.parameters["box"][1]


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ([0, 0, 1, 1], (588, 336)),  # 1280 x 720, shrunk to 200,704 pixels
        ([0, 0, 0.05, 0.05], (308, 168)),  # 64 x 36, enlarged to 50,176
    ],
)
async def test_sizes_keep_the_shape_within_the_bounds(box: list[float], size: tuple[int, int]) -> None:
    request = await planned(Zoom(), {"time": 0, "box": box})
    assert (request.width, request.height) == size


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"box": [0, 0, 1, 1]}, "malformed_call: time must be a number of seconds, got None"),
        ({"time": "4", "box": [0, 0, 1, 1]}, "malformed_call: time must be"),
        (
            {"time": 100.5, "box": [0, 0, 1, 1]},
            "out_of_range: time 100.5 is outside the video, which lasts from 0 to 100",
        ),
        ({"time": -1, "box": [0, 0, 1, 1]}, "out_of_range: time -1 "),
        ({"time": 4}, "malformed_call: box must be [left, top, right, bottom], four numbers, got None"),
        ({"time": 4, "box": [0, 0, 1]}, "malformed_call: box must be"),
        ({"time": 4, "box": [0, 0, 1, "1"]}, "malformed_call: box must be"),
        ({"time": 4, "box": [0, 0, 1, True]}, "malformed_call: box must be"),
        ({"time": 4, "box": [0, 0, 1, 10**400]}, "malformed_call: box must be"),
        ({"time": 4, "box": [0, 0, 1, float("nan")]}, "malformed_call: box must be"),
        ({"time": 4, "box": "0011"}, "malformed_call: box must be"),
        ({"time": 4, "box": {"a": 1, "b": 2, "c": 3, "d": 4}}, "malformed_call: box must be"),
        ({"time": 4, "box": [0.6, 0, 0.5, 1]}, "reversed_box: box [0.6, 0, 0.5, 1] ends before it starts"),
        ({"time": 4, "box": [0, 0.6, 1, 0.5]}, "reversed_box: "),
        ({"time": 4, "box": [0, 0, 1.2, 1]}, "box_outside: box [0, 0, 1.2, 1] leaves the frame, which is [0, 0, 1, 1]"),
        ({"time": 4, "box": [-0.1, 0, 1, 1]}, "box_outside: "),
        ({"time": 4, "box": [0.5, 0, 0.5, 1]}, "box_too_small: box [0.5, 0, 0.5, 1] covers nothing"),
        (
            {"time": 4, "box": [0.5, 0, 0.51, 1]},
            "box_too_small: box [0.5, 0, 0.51, 1] covers 13x720 pixels, and each side must have 28: "
            "make it at least 0.02187 wide and 0.03889 high",
        ),
    ],
)
async def test_refusals(arguments: Any, error: str) -> None:
    with pytest.raises(CallRejected) as refused:
        await Zoom().plan(arguments, context())
    assert str(refused.value).startswith(error)


def seen(*parts: PixelBox | None) -> tuple[ShownFrame, ...]:
    return tuple(ShownFrame(30 * number, float(number), 0, part) for number, part in enumerate(parts))


def with_shown(shown: tuple[ShownFrame, ...]) -> ToolContext:
    return replace(context(), previous_frames=shown)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"frame": 2, "box": [0, 0, 1, 1]}, "unknown_frame: there is no picture 2; pictures run from 0 to 1"),
        ({"frame": -1, "box": [0, 0, 1, 1]}, "unknown_frame: there is no picture -1"),
        ({"frame": 1.0, "box": [0, 0, 1, 1]}, "malformed_call: frame must be a whole number, got 1.0"),
        ({"frame": True, "box": [0, 0, 1, 1]}, "malformed_call: frame must be"),
        ({"time": 4, "box": [0, 0, 1, 1]}, "malformed_call: frame must be a whole number, got None"),
    ],
)
async def test_refusals_of_pictures_by_their_place(arguments: Any, error: str) -> None:
    with pytest.raises(CallRejected) as refused:
        await Zoom(frame_by="frame").plan(arguments, with_shown(seen(None, None)))
    assert str(refused.value).startswith(error)


async def test_other_refusals_by_place() -> None:
    box = [0, 0, 1, 1]
    with pytest.raises(CallRejected, match="unknown_frame: there is no picture 0; none was shown"):
        await Zoom(frame_by="frame").plan({"frame": 0, "box": box}, with_shown(()))
    with pytest.raises(CallRejected, match="malformed_call: time must be a number"):
        await Zoom().plan({"frame": 0, "box": box}, with_shown(seen(None)))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), unit=st.sampled_from(["normalised", "thousandths", "pixels"]))
async def test_a_box_of_a_part_stays_in_the_part_unless_it_is_in_pixels(data: st.DataObject, unit: Any) -> None:
    left, top = data.draw(st.integers(0, 1279)), data.draw(st.integers(0, 719))
    part = PixelBox(left, top, data.draw(st.integers(left + 1, 1280)), data.draw(st.integers(top + 1, 720)))
    size = (1280, 720) if unit == "pixels" else (part.width, part.height)
    right, bottom = frame_edges(unit, *size)
    tool = Zoom(frame_by="frame", unit=unit, min_side_pixels=1)
    plan = await tool.plan({"frame": 1, "box": [0, 0, right, bottom]}, with_shown(seen(None, part)))
    assert plan.frames is not None and plan.frames.region is not None and plan.frames.indices == (30,)
    shown = plan.frames.region.in_pixels(1280, 720)
    assert shown == ((0, 0, 1280, 720) if unit == "pixels" else part)
    assert plan.result == {"box": list(shown)}


async def test_the_picture_number_in_a_refusal_is_cut() -> None:
    with pytest.raises(CallRejected) as refused:
        await Zoom(frame_by="frame").plan({"frame": 10**1000, "box": [0, 0, 1, 1]}, with_shown(seen(None)))
    assert len(str(refused.value)) < 200


def test_the_description_offers_what_calls_may_name() -> None:
    assert list(Zoom().description.parameters) == ["time", "box"]
    assert list(Zoom(frame_by="frame").description.parameters) == ["frame", "box"]


async def test_pixels_of_another_unit_are_outside() -> None:
    with pytest.raises(CallRejected, match=r"box_outside: .* which is \[0, 0, 1280, 720\]"):
        await Zoom(unit="pixels").plan({"time": 4, "box": [0, 0, 1281, 720]}, context())


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), width=st.integers(40, 2000), height=st.integers(40, 2000), bounds=st.booleans())
async def test_tokens_are_what_the_processor_makes(
    name: str, data: st.DataObject, width: int, height: int, bounds: bool
) -> None:
    processor = PROCESSORS[name]
    kwargs = {"min_pixels": 4096, "max_pixels": 150_000} if bounds else {}
    envelope = envelope_of(processor, kwargs)
    most = data.draw(st.integers(1024, 90_000))
    tool = Zoom(unit="pixels", max_pixels=most, min_pixels=data.draw(st.integers(1, most)), min_side_pixels=1)
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = [left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))]
    request = await planned(tool, {"time": 1, "box": box}, width=width, height=height, envelope=envelope)
    picture = np.zeros((request.height, request.width, 3), dtype=np.uint8)
    grid_THW = processor(picture, return_tensors="pt", **kwargs)["image_grid_thw"][0]
    tokens = int(grid_THW.prod()) // processor.merge_size**2
    assert request_tokens(request, envelope.factor) == tokens
    assert (int(grid_THW[2]) * processor.patch_size, int(grid_THW[1]) * processor.patch_size) == (
        request.width,
        request.height,
    )
    assert tokens <= request_tokens(tool.most_expensive_call(INFO, envelope), envelope.factor)


async def test_a_frame_of_another_video_is_zoomed_there() -> None:
    second = replace(INFO, width=640, height=480)
    shown = replace(seen(None, None)[1], video=1)
    two = replace(with_shown((seen(None)[0], shown)), videos=(INFO, second))
    plan = await Zoom(frame_by="frame").plan({"frame": 1, "box": [0.5, 0.5, 1, 1]}, two)
    assert plan.frames is not None and plan.frames.video == 1
    assert plan.result == {"box": [320, 240, 640, 480]}


def test_the_most_expensive_call_can_be_made() -> None:
    envelope = PixelEnvelope(28, 3136, 12_845_056)
    largest = Zoom(max_pixels=200_704).most_expensive_call(INFO, envelope)
    assert (largest.width, largest.height) == (448, 448)
    smallest = Zoom(max_pixels=1024, min_pixels=1).most_expensive_call(INFO, envelope)
    assert request_tokens(smallest, 28) == 4  # the model's own minimum


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"max_pixels": 1000}, "max_pixels must be at least 1024"),
        ({"min_pixels": 300_000}, "min_pixels must be from 1 to max_pixels, 200704"),
        ({"min_pixels": 0}, "min_pixels must be"),
        ({"min_side_pixels": 0}, "min_side_pixels must be at least 1"),
    ],
)
def test_fields_out_of_range(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Zoom(**fields)


@given(box=st.tuples(*[st.integers(0, 1280)] * 2, *[st.integers(0, 720)] * 2))
async def test_what_a_label_says_names_the_same_pixels(box: tuple[int, ...]) -> None:
    left, right = sorted(box[:2])
    top, bottom = sorted(box[2:])
    if left == right or top == bottom:
        return
    pixels = PixelBox(left, top, right, bottom)
    info = VideoInfo(100.0, 3000, 30.0, 1280, 720)
    for unit in ("normalised", "thousandths", "pixels"):
        label = picture_label(FrameRecord(60, 2.0, 56, 56, pixels), info, unit)
        told = label.removeprefix("2.00 s, part ")
        request = await planned(
            Zoom(unit=unit, min_side_pixels=1), {"time": 2, "box": [float(n) for n in told[1:-1].split(",")]}
        )
        named = request.region.in_pixels(1280, 720)  # type: ignore[union-attr]
        assert all(abs(a - b) <= 1 for a, b in zip(named, pixels, strict=True))
