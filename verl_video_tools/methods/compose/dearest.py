"""The most expensive call of a tool, by what its fields say it can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.frame_at import frame_size as square_size
from verl_video_tools.video.resize import Aspect, fit_pixels, size_in_box


def dearest_request(tools: Sequence[vt.Tool], info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest | None:
    """As many frames as one call of these tools can show of a video, at their size; None if none says."""
    known = [request for tool in tools if (request := _of_tool(tool, info, envelope)) is not None]
    return max(known, key=lambda request: len(request) * request.width * request.height, default=None)


def _of_tool(tool: Any, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest | None:
    if hasattr(tool, "dearest"):  # it says so itself
        request: vt.FrameRequest | None = tool.dearest(info, envelope)
        return request
    size = _size(tool, info, envelope)
    if size is None:
        return None
    num_frames = getattr(tool, "max_frames", getattr(tool, "num_frames", 1))
    if hasattr(tool, "fps"):  # a rate that is the tool's own bounds the number, too
        num_frames = min(num_frames, max(2, math.ceil(info.duration_seconds * tool.fps)))
    return vt.spread_frames(info, num_frames, size)


def _size(tool: Any, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int] | None:
    """By the fields that a tool has for the size of its frames; None where it has none of them."""
    if hasattr(tool, "box_width"):
        aspect: Aspect = getattr(tool, "aspect", "fit")
        return size_in_box(info.width, info.height, tool.box_width, tool.box_height, envelope, aspect)
    if hasattr(tool, "min_pixels"):
        return vt.frame_size(info, tool.min_pixels, tool.max_pixels, envelope)
    if hasattr(tool, "max_pixels"):
        return fit_pixels(info.width, info.height, tool.max_pixels, envelope)
    if hasattr(tool, "side_pixels"):
        return square_size(info, tool.side_pixels, tool.resize, envelope)
    return None
