"""Sizes of frames by a bound on their area."""

from __future__ import annotations

from verl_video_tools.core.types import PixelEnvelope, VideoInfo
from verl_video_tools.video.resize import fit_envelope

PATCH_FACTOR = 28
"""Sides are multiples of this many pixels where no processor says otherwise (Qwen2.5-VL: patches of 14, merged 2x2)."""


def frame_size(info: VideoInfo, min_pixels: int, max_pixels: int, envelope: PixelEnvelope) -> tuple[int, int]:
    """Width and height of shown frames in pixels: multiples of the model's factor, area within all bounds."""
    factor = PATCH_FACTOR if envelope.factor == 1 else envelope.factor
    most = min(max_pixels, envelope.max_pixels)
    bounds = PixelEnvelope(factor, min(max(min_pixels, envelope.min_pixels), most), most)
    return fit_envelope(info.width, info.height, bounds)
