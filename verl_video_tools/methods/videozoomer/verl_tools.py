"""The tools as verl's own tool loop offers them (docs/stock-tool-loop.md)."""

from __future__ import annotations

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer.video_zoom import VideoZoom

VIDEO_ZOOM = vt.ToolDescription(
    name=VideoZoom.name,
    description=(
        "Look closer at a part of the video: shows frames of a segment at a chosen rate, then lists their times in the "
        "order shown. Too many frames, (end - start) * fps, are refused with the limit."
    ),
    parameters={
        "segment": ("array", "Start and end in seconds, [start, end], within the video."),
        "fps": ("number", "Frames per second to show."),
    },
)

TOOL_DESCRIPTIONS = (VIDEO_ZOOM,)
