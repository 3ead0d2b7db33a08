"""Frames spread over the whole video, or chosen by the question, and sizes of frames by a bound on their area."""

from __future__ import annotations

import math
from dataclasses import replace

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import FrameRequest, PixelEnvelope, ToolContext, VideoInfo
from verl_video_tools.video.resize import fit_envelope
from verl_video_tools.video.sampling import fps_seconds, linspace_indices, not_before, uniform_seconds

PATCH_FACTOR = 28
"""Sides are multiples of this many pixels where no processor says otherwise (Qwen2.5-VL: patches of 14, merged 2x2)."""


def frame_size(info: VideoInfo, min_pixels: int, max_pixels: int, envelope: PixelEnvelope) -> tuple[int, int]:
    """Width and height of shown frames in pixels: multiples of the model's factor, area within all bounds."""
    return fit_envelope(info.width, info.height, pixel_bounds(min_pixels, max_pixels, envelope))


def pixel_bounds(min_pixels: int, max_pixels: int, envelope: PixelEnvelope) -> PixelEnvelope:
    """A tool's own bounds on the area of a picture, within the model's; where they contradict, the model's hold.

    There is always a size within them: both bounds leave room for a whole number of the model's cells.
    """
    factor = PATCH_FACTOR if envelope.factor == 1 else envelope.factor
    cell = factor**2
    most = max(min(max_pixels, envelope.max_pixels), math.ceil(envelope.min_pixels / cell) * cell)
    least = min(max(min_pixels, envelope.min_pixels), most // cell * cell)
    return PixelEnvelope(factor, least, most)


def spread_frames(info: VideoInfo, num_frames: int, size: tuple[int, int]) -> FrameRequest:
    """Frames spread evenly from the first of the video to the last; all of a shorter video.

    Args:
        size: width and height in pixels.
    """
    width, height = size
    return FrameRequest(width=width, height=height, indices=linspace_indices(0, info.num_frames - 1, num_frames))


def rate_frames(info: VideoInfo, fps: float, max_frames: int, size: tuple[int, int]) -> FrameRequest:
    """Frames on screen every `1 / fps` seconds from the first on; where these are more than `max_frames` times, at so
    many spread evenly from the first frame of the video to the last. Each frame comes once.

    Args:
        fps: times per second.
        size: width and height in pixels.
    """
    width, height = size
    if info.duration_seconds * fps - 1e-9 > max_frames:
        seconds = uniform_seconds(0.0, info.last_seconds, max_frames)
    else:
        seconds = fps_seconds(0.0, info.duration_seconds, fps, max_frames)
    return FrameRequest(width=width, height=height, seconds=not_before(seconds, info.duration_seconds), unique=True)


NUM_CANDIDATES = 256
"""Frames spread over the video that `most_similar` compares with the question."""


async def most_similar(request: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    """The frames most like the question, in order of time; as many as the method would show.

    Raises:
        RetrievalError: the run has no retriever (docs/retrieval.md), or it gave no answer.
    """
    if context.retriever is None:
        raise RetrievalError("the selector most_similar needs a retriever, and the run has none")
    last = context.info.num_frames - 1
    candidates = linspace_indices(0, last, max(NUM_CANDIDATES, request.num_frames))
    best = await context.retriever.best_frames(
        context.sample.video_path, candidates, context.sample.question, request.num_frames, deadline_seconds
    )
    return replace(request, seconds=None, indices=tuple(sorted(best)))
