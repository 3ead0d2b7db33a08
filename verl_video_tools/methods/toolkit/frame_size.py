"""Frames spread over the whole video, and sizes of frames by a bound on their area."""

from __future__ import annotations

from verl_video_tools.core.types import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.video.resize import fit_envelope
from verl_video_tools.video.sampling import fps_seconds, linspace_indices, not_before, uniform_seconds

PATCH_FACTOR = 28
"""Sides are multiples of this many pixels where no processor says otherwise (Qwen2.5-VL: patches of 14, merged 2x2)."""


def frame_size(info: VideoInfo, min_pixels: int, max_pixels: int, envelope: PixelEnvelope) -> tuple[int, int]:
    """Width and height of shown frames in pixels: multiples of the model's factor, area within all bounds."""
    factor = PATCH_FACTOR if envelope.factor == 1 else envelope.factor
    most = min(max_pixels, envelope.max_pixels)
    bounds = PixelEnvelope(factor, min(max(min_pixels, envelope.min_pixels), most), most)
    return fit_envelope(info.width, info.height, bounds)


def spread_frames(info: VideoInfo, num_frames: int, size: tuple[int, int]) -> FrameRequest:
    """Frames spread evenly from the first of the video to the last; all of a shorter video.

    Args:
        size: width and height in pixels.
    """
    width, height = size
    return FrameRequest(width=width, height=height, indices=linspace_indices(0, info.num_frames - 1, num_frames))


def rate_frames(info: VideoInfo, fps: float, max_frames: int, size: tuple[int, int]) -> FrameRequest:
    """Frames `1 / fps` seconds apart from the first on; where these are more than `max_frames`, so many spread evenly
    from the first of the video to the last.

    Args:
        fps: frames per second; no more than the video has are taken.
        size: width and height in pixels.
    """
    width, height = size
    seconds = fps_seconds(0.0, info.duration_seconds, min(fps, info.average_fps), info.num_frames)
    if len(seconds) > max_frames:
        seconds = uniform_seconds(0.0, (info.num_frames - 1) / info.average_fps, max_frames)
    return FrameRequest(width=width, height=height, seconds=not_before(seconds, info.duration_seconds))
