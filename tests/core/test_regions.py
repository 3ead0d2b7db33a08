"""What a request names becomes whole pixels."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.errors import FrameRangeError
from verl_video_tools.core.regions import EDGE_TOLERANCE_PIXELS, Box, PixelBox, Region, frame_edges, scaled

sides = st.integers(1, 4000)


@st.composite
def pixel_boxes(draw: st.DrawFn, width: int, height: int) -> PixelBox:
    left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return PixelBox(left, top, draw(st.integers(left + 1, width)), draw(st.integers(top + 1, height)))


@given(data=st.data(), width=sides, height=sides, unit=st.sampled_from(["normalised", "thousandths", "pixels"]))
def test_whole_pixels_come_back_from_every_unit(data: st.DataObject, width: int, height: int, unit: str) -> None:
    box = data.draw(pixel_boxes(width, height))
    right, bottom = frame_edges(unit, width, height)
    named = Box(
        box.left / width * right, box.top / height * bottom, box.right / width * right, box.bottom / height * bottom
    )
    assert Region(named, unit).in_pixels(width, height) == box


@given(width=sides, height=sides, edges=st.tuples(*[st.floats(0, 1)] * 4))
def test_every_pixel_that_is_touched_and_no_other(width: int, height: int, edges: tuple[float, ...]) -> None:
    left, right = sorted(edges[:2])
    top, bottom = sorted(edges[2:])
    if not Box(left, top, right, bottom).is_proper():
        return
    box = Region(Box(left, top, right, bottom), "normalised").in_pixels(width, height)
    for start, end, first, last, side in (
        (left, right, box.left, box.right, width),
        (top, bottom, box.top, box.bottom, height),
    ):
        assert 0 <= first < last <= side
        assert first <= start * side + EDGE_TOLERANCE_PIXELS and end * side - EDGE_TOLERANCE_PIXELS <= last
        assert first + 1 > start * side or first == side - 1
        assert last - 1 < end * side or last == first + 1


def test_float_error_adds_no_row() -> None:
    assert 0.07 * 100 > 7
    assert Region(Box(0, 0, 0.07, 1), "normalised").in_pixels(100, 50) == (0, 0, 7, 50)


@pytest.mark.parametrize(
    ("unit", "box"),
    [
        ("pixels", (0, 0, 97, 64)),
        ("pixels", (0, 0, 96, 65)),
        ("pixels", (-1, 0, 9, 9)),
        ("normalised", (0, 0, 1.01, 1)),
        ("normalised", (0, -0.1, 1, 1)),
        ("thousandths", (0, 0, 1000, 1001)),
    ],
)
def test_a_region_that_leaves_the_frame_is_refused(unit: str, box: tuple[float, ...]) -> None:
    with pytest.raises(FrameRangeError, match="leaves the frame of 96x64"):
        Region(Box(*box), unit).in_pixels(96, 64)


@pytest.mark.parametrize("box", [(4, 0, 4, 9), (5, 0, 4, 9), (0, 9, 4, 1), (0, 0, math.nan, 1), (0, 0, math.inf, 1)])
def test_a_region_covers_something(box: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="left < right"):
        Region(Box(*box))


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="percent"):
        Region(Box(0, 0, 1, 1), "percent")  # type: ignore[arg-type]


@given(data=st.data(), width=sides, height=sides)
def test_another_size_of_frame_shows_the_same_part(data: st.DataObject, width: int, height: int) -> None:
    box = data.draw(pixel_boxes(width, height))
    assert scaled(box, (width, height), (width, height)) == box
    assert scaled(box, (width, height), (3 * width, 2 * height)) == (
        3 * box.left,
        2 * box.top,
        3 * box.right,
        2 * box.bottom,
    )
    small = scaled(box, (width, height), (max(1, width // 7), max(1, height // 7)))
    assert 0 <= small.left < small.right <= max(1, width // 7) and 0 <= small.top < small.bottom <= max(1, height // 7)
