"""What the machine's cores do for the actor: decoding frames, and the processor that makes tensors of them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.gpu_model.lengths import Lengths
from benchmarks.gpu_model.meter import Measured
from benchmarks.video.long_files import LongVideo, write_long_video
from verl_video_tools.launch.plan import ModelShape

FULL_HD = LongVideo("decode", 1920, 1080, copy_seconds=10, copies=60)
SMALL = LongVideo("decode", 160, 90, copy_seconds=1, copies=20)
NUM_FRAMES = 64


def processor_seconds(shape: ModelShape, lengths: Lengths) -> Measured:
    """Of all images of a rollout, by transformers' processor for Qwen-VL, on one core or as many as torch takes."""
    from transformers import Qwen2VLImageProcessor

    processor = Qwen2VLImageProcessor(
        patch_size=shape.patch, merge_size=shape.merge, temporal_patch_size=shape.temporal_patch
    )
    height, width = (side * shape.patch for side in lengths.grid)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for _ in range(lengths.images)]
    limits = {"shortest_edge": height * width, "longest_edge": height * width}
    started = time.perf_counter()
    processor(images, size=limits, return_tensors="pt")
    seconds = time.perf_counter() - started
    case = f"{lengths.method}, {lengths.images} images of {width}x{height}"
    return Measured("processor", case, seconds)


def decode_seconds(video: LongVideo, num_frames: int = NUM_FRAMES) -> Measured:
    """Core-seconds of one process that reads frames spread over a video."""
    from verl_video_tools.video import Video

    with tempfile.TemporaryDirectory() as folder:
        opened = Video(str(write_long_video(video, Path(folder))))
        times = np.linspace(0, opened.info.duration_seconds, num_frames, endpoint=False)
        started = time.process_time()
        opened.frames_at(times.tolist(), height=168, width=280)
        seconds = time.process_time() - started
    return Measured("decoding", f"{num_frames} frames of {video.width}x{video.height}", seconds)
