"""The tools as verl's own tool loop offers them (docs/stock-tool-loop.md)."""

from __future__ import annotations

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt.crop_video import CropVideo

CROP_VIDEO = vt.ToolDescription(
    name=CropVideo.name,
    description=(
        "Look closer at a part of the video: shows its frames from start_time to end_time, then lists their times in "
        "the order shown."
    ),
    parameters={
        "video_path": ("string", "Path of the video, if it was given with the question; may be left out."),
        "start_time": ("number", "Where the part starts, in seconds from the start of the video."),
        "end_time": ("number", "Where the part ends, in seconds; after start_time, within the video."),
    },
    optional=("video_path",),
    frame_label="{frame.timestamp_seconds:.1f} s",
)

TOOL_DESCRIPTIONS = (CROP_VIDEO,)
