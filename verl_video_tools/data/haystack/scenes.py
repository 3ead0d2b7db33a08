"""Where a video is cut, and the parts that captions are about (LongVT, 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.video import Video, fit_box, fps_seconds

Part = tuple[float, float]
"""Start and end in seconds."""

_SCAN_BOX = (160, 90)
"""Width and height in pixels of compared frames: cuts show at any size."""
_BATCH_FRAMES = 64
_FLASH_SECONDS = 1.0
"""A scene that is shorter is taken for a flash."""


def find_cuts(
    path: Path, scan_fps: float, threshold: float, deadline_seconds: float | None = None
) -> tuple[list[float], VideoInfo]:
    """Times at which another scene begins, ascending, and the facts of the file; by scenedetect's ContentDetector (https://www.scenedetect.com).

    The detector is fed with frames at `scan_fps`, by their times: a frame rate that varies does no harm, and a cut is
    found 1 / `scan_fps` late at most.

    Args:
        deadline_seconds: for every batch of 64 frames.

    Raises:
        UsageError: the package scenedetect is not installed.
        VideoError: the video cannot be read.
    """
    try:
        from scenedetect import ContentDetector, FrameTimecode
    except ModuleNotFoundError as error:
        raise UsageError("scenes need the package scenedetect: uv pip install '.[haystack]' in the checkout") from error
    detector = ContentDetector(threshold=threshold, min_scene_len=max(1, round(_FLASH_SECONDS * scan_fps)))
    with Video(path, deadline_seconds) as video:
        info, duration = video.info, video.info.duration_seconds
        seconds = fps_seconds(0.0, duration, scan_fps, max_frames=math.ceil(duration * scan_fps) + 1)
        width, height = fit_box(info.width, info.height, *_SCAN_BOX)
        shown_seconds: list[float] = []
        cuts: list[FrameTimecode] = []
        for start in range(0, len(seconds), _BATCH_FRAMES):
            batch = video.frames_at(seconds[start : start + _BATCH_FRAMES], height, width, deadline_seconds)
            for frame_RGB, time in zip(batch.frames_THWC, batch.timestamps_seconds, strict=True):
                code = FrameTimecode(len(shown_seconds), fps=scan_fps)
                cuts += detector.process_frame(code, np.ascontiguousarray(frame_RGB[..., ::-1]))
                shown_seconds.append(float(time))
    cuts += detector.post_process(FrameTimecode(len(shown_seconds) - 1, fps=scan_fps))
    return sorted({shown_seconds[cut.frame_num] for cut in cuts} - {0.0}), info


def join_scenes(cuts: Sequence[float], duration_seconds: float, min_seconds: float, max_seconds: float) -> list[Part]:
    """Parts that cover the video: consecutive scenes joined until they are long enough, long ones divided evenly.

    A video shorter than `min_seconds` is one part.

    Args:
        cuts: ascending, within the video.
        max_seconds: at least twice `min_seconds`.
    """
    joined: list[Part] = []
    start = 0.0
    for end in (*cuts, duration_seconds):
        if end - start >= min_seconds:
            joined.append((start, end))
            start = end
    if start < duration_seconds:  # the rest is too short for a part of its own
        joined = [*joined[:-1], (joined[-1][0] if joined else 0.0, duration_seconds)]
    parts: list[Part] = []
    for start, end in joined:
        edges = np.linspace(start, end, math.ceil((end - start) / max_seconds) + 1).tolist()
        parts += pairwise(edges)
    return parts
