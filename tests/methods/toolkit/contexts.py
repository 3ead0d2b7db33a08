"""What a tool may know, without a video."""

from __future__ import annotations

from tests.methods.frame_index import awaited
from verl_video_tools.core.types import PixelEnvelope, Sample, ToolContext, VideoInfo

FPS = 30


def context(
    width: int = 1280, height: int = 720, num_frames: int = 3000, envelope: PixelEnvelope | None = None
) -> ToolContext:
    info = VideoInfo(num_frames / FPS, num_frames, float(FPS), width, height)
    sample = Sample("?", "B", "video.mp4", "mc")
    index_at = awaited(lambda seconds: min(int(seconds * FPS), num_frames - 1))
    return ToolContext(info, sample, envelope or PixelEnvelope(), index_at)
