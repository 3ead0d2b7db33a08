"""Token costs and envelopes, against what the real image processors put out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

from verl_video_tools.core.errors import UsageError
from verl_video_tools.video import envelope_of, fit_box, fit_envelope, image_tokens

# As the released checkpoints configure them; Qwen3-VL uses the class of Qwen2-VL with patches of 16 pixels.
PROCESSORS = {
    "qwen2_vl": Qwen2VLImageProcessor(size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}),
    "qwen2_5_vl": Qwen2VLImageProcessor(size={"shortest_edge": 3136, "longest_edge": 12_845_056}),
    "qwen3_vl": Qwen2VLImageProcessor(patch_size=16, size={"shortest_edge": 65_536, "longest_edge": 16_777_216}),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_envelope(name: str) -> None:
    envelope = envelope_of(PROCESSORS[name])
    processor = PROCESSORS[name]
    assert envelope.factor == (32 if name == "qwen3_vl" else 28)
    assert (envelope.min_pixels, envelope.max_pixels) == (processor.size.shortest_edge, processor.size.longest_edge)


def test_envelope_of_a_whole_processor() -> None:
    class Processor:
        image_processor = PROCESSORS["qwen3_vl"]

    assert envelope_of(Processor()) == envelope_of(PROCESSORS["qwen3_vl"])


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=25, deadline=None)
@given(
    width=st.integers(30, 900),
    height=st.integers(30, 900),
    bounds=st.none() | st.tuples(st.integers(1, 60_000), st.integers(70_000, 300_000)),
)
def test_tokens_are_what_the_processor_makes(
    name: str, width: int, height: int, bounds: tuple[int, int] | None
) -> None:
    processor = PROCESSORS[name]
    kwargs = {} if bounds is None else {"min_pixels": bounds[0], "max_pixels": bounds[1]}
    envelope = envelope_of(processor, kwargs)
    width, height = fit_box(width, height, 640, 360, envelope)
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    grid_THW = processor(picture, return_tensors="pt", **kwargs)["image_grid_thw"][0]
    assert (int(grid_THW[2]) * processor.patch_size, int(grid_THW[1]) * processor.patch_size) == (width, height)
    assert image_tokens(width, height, envelope.factor) == int(grid_THW.prod()) // processor.merge_size**2


@pytest.mark.parametrize(
    ("kwargs", "side", "tokens"), [({}, 256, 64), ({"min_pixels": 784, "max_pixels": 50_176}, 64, 4)]
)
def test_qwen3_vl_enlarges_small_frames_unless_told_otherwise(kwargs: dict[str, int], side: int, tokens: int) -> None:
    processor = PROCESSORS["qwen3_vl"]
    width, height = fit_envelope(56, 56, envelope_of(processor, kwargs))
    assert (width, height) == (side, side)
    grid_THW = processor(np.zeros((56, 56, 3), np.uint8), return_tensors="pt", **kwargs)["image_grid_thw"][0]
    assert image_tokens(width, height, 32) == int(grid_THW.prod()) // 4 == tokens


@pytest.mark.parametrize("name", PROCESSORS)
@settings(deadline=None)
@given(width=st.integers(1, 4096), height=st.integers(1, 4096))
def test_tokens_of_any_size_are_what_the_processor_says(name: str, width: int, height: int) -> None:
    """Any picture up to 4K, sized by us and counted by the processor; nothing is processed."""
    processor = PROCESSORS[name]
    envelope = envelope_of(processor)
    width, height = fit_envelope(width, height, envelope)
    num_patches = processor.get_number_of_image_patches(height, width, {})
    assert image_tokens(width, height, envelope.factor) * processor.merge_size**2 == num_patches


@pytest.mark.parametrize(
    ("size", "factor", "tokens"), [((644, 364), 28, 299), ((448, 252), 28, 144), ((448, 448), 32, 196)]
)
def test_published_costs(size: tuple[int, int], factor: int, tokens: int) -> None:
    assert image_tokens(*size, factor) == tokens


@pytest.mark.parametrize("size", [(640, 360), (0, 28), (-28, 28)])
def test_size_that_the_processor_would_change(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="28-pixel cells"):
        image_tokens(*size, 28)


@pytest.mark.parametrize("overrides", [{"min_pixels": 10_000}, {"max_pixels": 784, "min_pixels": None}])
def test_a_lone_bound_is_refused_since_transformers_ignores_it(overrides: dict[str, int | None]) -> None:
    processor = PROCESSORS["qwen2_5_vl"]
    picture = np.zeros((56, 56, 3), dtype=np.uint8)
    given_bounds = {name: value for name, value in overrides.items() if value is not None}
    with_bound = processor(picture, return_tensors="pt", **given_bounds)["image_grid_thw"]
    assert with_bound.tolist() == processor(picture, return_tensors="pt")["image_grid_thw"].tolist()
    with pytest.raises(UsageError, match="both min_pixels and max_pixels"):
        envelope_of(processor, overrides)


@pytest.mark.parametrize("bounds", [(800, 1000), (2000, 1000), (1, 783), (-5, 0)])
def test_bounds_that_no_image_meets_are_refused(bounds: tuple[int, int]) -> None:
    """28x28 pixels are 784, and the next image has twice as many."""
    with pytest.raises(UsageError, match=f"from min_pixels={bounds[0]} to max_pixels={bounds[1]} and sides"):
        envelope_of(PROCESSORS["qwen2_5_vl"], dict(zip(("min_pixels", "max_pixels"), bounds, strict=True)))


def test_bounds_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="must be whole, got"):
        envelope_of(PROCESSORS["qwen2_5_vl"], {"min_pixels": "28x28", "max_pixels": 50_176})


def test_other_processors_are_refused() -> None:
    with pytest.raises(UsageError, match="object"):
        envelope_of(object())
