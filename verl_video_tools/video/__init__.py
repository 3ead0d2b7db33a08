"""Pixels and time: frames of a video exact in time, which times to look at, at which size, at what cost in tokens.

Importing this needs NumPy and PyAV, not torch.
"""

from verl_video_tools.core.types import Box, FrameBatch, FrameRequest, PixelEnvelope, Region, VideoInfo
from verl_video_tools.video.decoding import cache_stats, decode_frames, index_at, open_video, planned_frames, share_cpus
from verl_video_tools.video.resize import (
    envelope_of,
    fit_box,
    fit_envelope,
    fit_pixels,
    image_tokens,
    request_tokens,
)
from verl_video_tools.video.sampling import fps_seconds, linspace_indices, not_before, uniform_seconds
from verl_video_tools.video.video import Video

__all__ = [
    "Box",
    "FrameBatch",
    "FrameRequest",
    "PixelEnvelope",
    "Region",
    "Video",
    "VideoInfo",
    "cache_stats",
    "decode_frames",
    "envelope_of",
    "fit_box",
    "fit_envelope",
    "fit_pixels",
    "fps_seconds",
    "image_tokens",
    "index_at",
    "linspace_indices",
    "not_before",
    "open_video",
    "planned_frames",
    "request_tokens",
    "share_cpus",
    "uniform_seconds",
]
