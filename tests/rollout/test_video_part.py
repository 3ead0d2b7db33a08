"""What a server is told of frames that it gets as one video: Qwen's processors leave them at their size."""

from __future__ import annotations

import importlib
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.videos.files import write_video
from verl_video_tools.core.types import FrameRecord, PixelEnvelope, Sample, VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.chat_policy import video_fields
from verl_video_tools.video import Video

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


@pytest.mark.parametrize("rate", ["constant", "variable"])
def test_a_number_over_the_rate_is_the_time_of_a_frame(rate: str, tmp_path: Path) -> None:
    """Sparse frames first, then dense ones: by their numbers most would lie in the last second."""
    gaps = [Fraction(1, 2)] * 10 + [Fraction(1, 30)] * 30 if rate == "variable" else [Fraction(1, 10)] * 40
    times = list(accumulate(gaps, initial=Fraction(0)))
    path = write_video(tmp_path / "video.mp4", fps=30 if rate == "variable" else 10, times_seconds=times)
    with Video(path) as video:
        request = get_method("direct", frames_as="video").plan_initial_frames(video.info, SAMPLE, PixelEnvelope(28))
        frames = video.planned(request)
        media = video_fields(video.info, frames)["media_io_kwargs"]["video"]
    told = [index / media["fps"] for index in media["frames_indices"]]
    shown = [frame.timestamp_seconds for frame in frames]
    assert told == pytest.approx(shown, abs=0.001)
    assert max(media["frames_indices"]) < media["total_num_frames"]
    assert media["total_num_frames"] / media["fps"] == pytest.approx(media["duration"], abs=0.001)
    even = np.linspace(0.0, float(times[-1]), len(shown))
    assert np.abs(np.array(shown) - even).max() <= 0.5, "even in time, as far as there are frames"
