"""Pixel tensors that are made on the GPU, where the model runs, are those that the processor makes on the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from verl.utils import hf_processor

from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir
from verl_video_tools.verl_plugin.images import HeldPixelValues

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

BOUND = 1e-5
"""Of values between -2 and 3 in float32: a device may round a division otherwise."""


@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_the_processors(family: Family, device: str) -> None:
    processor = hf_processor(str(base_model_dir(family))).image_processor
    factor = processor.patch_size * processor.merge_size
    noise = np.random.default_rng(0)
    shapes = [(2 * factor, 3 * factor, 3), (4 * factor, 2 * factor, 3), (2 * factor, 3 * factor, 3)]
    arrays = [noise.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    images = [
        ImagePart(FrameRecord(number, 0.0, array.shape[1], array.shape[0]), array)
        for number, array in enumerate(arrays)
    ]
    sizes = {"min_pixels": factor**2, "max_pixels": 64 * factor**2}
    held = HeldPixelValues(images, processor, sizes, torch.float32)
    found = torch.cat([held, held])  # as verl joins those of a micro-batch
    assert found.device.type == device
    host = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    expected = processor(images=host, return_tensors="pt", **sizes)["pixel_values"]
    assert found.shape == (2 * len(expected), expected.shape[1])
    assert (found[: len(expected)].cpu() - expected).abs().max() <= BOUND
    assert (found[len(expected) :].cpu() - expected.roll(1, 0)).abs().max() > BOUND  # others would be noticed
