"""What a server is told of frames that it gets as one video: Qwen's processors leave them at their size."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from verl_video_tools.core.types import FrameRecord, PixelEnvelope, Sample, VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.chat_policy import video_fields

pytest.importorskip("transformers")

SAMPLE = Sample("?", "A", "video.mp4", "mc")


@pytest.mark.parametrize(
    ("module", "factor"), [("qwen2_vl.image_processing_qwen2_vl", 28), ("qwen3_vl.video_processing_qwen3_vl", 32)]
)
def test_processors_do_not_resize(module: str, factor: int) -> None:
    for seconds in [1.0, 100.0, 3600.0]:
        for width, height in [(1920, 1080), (360, 640), (64, 48)]:
            info = VideoInfo(seconds, round(30 * seconds), 30.0, width, height)
            look = get_method("direct", frames_as="video").plan_initial_frames(info, SAMPLE, PixelEnvelope(factor))
            assert look.indices is not None
            frames = [FrameRecord(index, index / 30, look.width, look.height) for index in look.indices]
            size = video_fields(info, frames)["mm_processor_kwargs"]["size"]
            bounds = {"factor": factor, "min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
            smart_resize: Any = importlib.import_module(f"transformers.models.{module}").smart_resize
            length = {"num_frames": len(frames)} if factor == 32 else {}  # Qwen3-VL bounds all frames together
            assert smart_resize(height=look.height, width=look.width, **length, **bounds) == (
                look.height,
                look.width,
            ), info
