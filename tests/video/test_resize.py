"""Sizes: the box of the papers, and the processor's own resize as judge of the envelope."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from verl_video_tools.core.types import PixelEnvelope
from verl_video_tools.video import fit_box, fit_envelope, fit_pixels

QWEN25 = PixelEnvelope(factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)


@pytest.mark.parametrize(
    ("size", "box", "nearest", "floor"),
    [
        ((1920, 1080), (640, 360), (640, 360), (640, 360)),
        ((1920, 1080), (448, 252), (448, 252), (448, 252)),
        ((1280, 720), (448, 252), (448, 252), (448, 251)),
        ((720, 1280), (640, 360), (202, 360), (202, 360)),
        ((320, 240), (640, 360), (320, 240), (320, 240)),
        ((640, 360), (640, 360), (640, 360), (640, 360)),
        ((4000, 2), (640, 360), (640, 1), (640, 1)),
    ],
)
def test_box(size: tuple[int, int], box: tuple[int, int], nearest: tuple[int, int], floor: tuple[int, int]) -> None:
    assert fit_box(*size, *box) == nearest
    assert fit_box(*size, *box, PixelEnvelope(), rounding="floor") == floor


@pytest.mark.parametrize(
    ("size", "box", "envelope", "expected"),
    [
        ((1920, 1080), (640, 360), QWEN25, (644, 364)),
        ((1280, 720), (448, 252), QWEN25, (448, 252)),
        ((224, 224), (224, 224), PixelEnvelope(32, 224 * 224, 448 * 448), (224, 224)),
        ((224, 224), (224, 224), PixelEnvelope(32, 65536, 16777216), (256, 256)),
        ((1920, 1080), (1920, 1080), PixelEnvelope(28, 56 * 56, 100_352), (420, 224)),
    ],
)
def test_box_and_envelope(
    size: tuple[int, int], box: tuple[int, int], envelope: PixelEnvelope, expected: tuple[int, int]
) -> None:
    assert fit_box(*size, *box, envelope) == expected


@st.composite
def envelopes(draw: st.DrawFn) -> PixelEnvelope:
    factor = draw(st.sampled_from([14, 16, 28, 32, 48]))
    min_cells = draw(st.integers(1, 600))
    max_cells = draw(st.integers(min_cells, 20_000))
    return PixelEnvelope(factor, min_cells * factor**2, max_cells * factor**2)


@given(st.integers(1, 8192), st.integers(1, 8192), envelopes())
@example(8192, 1, PixelEnvelope(28, 28 * 28, 28 * 28))
@example(1, 8192, PixelEnvelope(28, 28 * 28 * 7, 28 * 28 * 7))
@example(641, 359, PixelEnvelope(28, 28 * 28 * 13, 28 * 28 * 13))
@example(8192, 8192, PixelEnvelope(28, 1, 1 << 62))
@example(8192, 1, PixelEnvelope(28, 1, 1 << 62))
def test_the_processor_leaves_the_size_alone(width: int, height: int, envelope: PixelEnvelope) -> None:
    try:
        new_width, new_height = fit_envelope(width, height, envelope)
    except ValueError:
        assert not any_accepted_size(envelope)
        return
    assert new_width % envelope.factor == 0 and new_height % envelope.factor == 0
    bounds = (envelope.factor, envelope.min_pixels, envelope.max_pixels)
    assert smart_resize(new_height, new_width, *bounds) == (new_height, new_width)


def any_accepted_size(envelope: PixelEnvelope) -> bool:
    """Whether some grid has an area within the bounds and sides at most 200 : 1."""
    min_cells, max_cells = envelope.min_pixels / envelope.factor**2, envelope.max_pixels // envelope.factor**2
    return any(
        min_cells <= short * long <= max_cells
        for short in range(1, int(max_cells**0.5) + 1)
        for long in range(short, 200 * short + 1)
    )


@given(st.integers(28, 4096), st.integers(28, 4096), envelopes())
def test_where_smart_resize_is_stable_the_size_is_its_own(width: int, height: int, envelope: PixelEnvelope) -> None:
    """The plain case: scaling here first changes nothing about which size the processor would have chosen."""
    bounds = (envelope.factor, envelope.min_pixels, envelope.max_pixels)
    chosen = smart_resize(height, width, *bounds)
    assume(min(chosen) > 0 and max(chosen) <= 200 * min(chosen))  # it refuses longer sides
    assume(smart_resize(*chosen, *bounds) == chosen)
    assert fit_envelope(width, height, envelope) == (chosen[1], chosen[0])


@given(st.integers(1, 8192), st.integers(1, 8192), st.integers(1, 2000), st.integers(1, 2000))
def test_box_only_shrinks(width: int, height: int, box_width: int, box_height: int) -> None:
    new_width, new_height = fit_box(width, height, box_width, box_height)
    assert 1 <= new_width <= min(width, box_width) and 1 <= new_height <= min(height, box_height)


@pytest.mark.parametrize("sides", [(0, 10, 5, 5), (10, 10, 5, 0)])
def test_impossible_sides(sides: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="sides must be"):
        fit_box(*sides)


@pytest.mark.parametrize("envelope", [PixelEnvelope(28, 1, 27 * 28), PixelEnvelope(28, 800, 1500)])
def test_impossible_envelope(envelope: PixelEnvelope) -> None:
    with pytest.raises(ValueError, match="factor=28"):
        fit_envelope(640, 360, envelope)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1920, 1080), (422, 237)), ((640, 480), (365, 274)), ((320, 240), (320, 240)), ((448, 224), (448, 224))],
)
def test_pixels(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fit_pixels(*size, 100_352) == expected


@given(st.integers(16, 8192), st.integers(16, 8192), st.integers(10_000, 1_000_000))
def test_pixels_only_shrink_and_keep_the_shape(width: int, height: int, max_pixels: int) -> None:
    new_width, new_height = fit_pixels(width, height, max_pixels)
    assert new_width * new_height <= max(max_pixels, 1)
    if width * height <= max_pixels:
        assert (new_width, new_height) == (width, height)
    else:  # truncation takes less than a pixel of either side
        scale = (max_pixels / (width * height)) ** 0.5
        assert scale * width - 1 < new_width <= scale * width + 1e-6
        assert scale * height - 1 < new_height <= scale * height + 1e-6


@given(st.integers(16, 8192), st.integers(16, 8192), envelopes())
def test_pixels_end_in_the_envelope(width: int, height: int, envelope: PixelEnvelope) -> None:
    try:
        expected = fit_envelope(*fit_pixels(width, height, 100_352), envelope)
    except ValueError:
        assume(False)
    assert fit_pixels(width, height, 100_352, envelope) == expected


@pytest.mark.parametrize("sides", [(0, 10, 5), (10, 10, 0)])
def test_impossible_area(sides: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="sides and area must be"):
        fit_pixels(*sides)
