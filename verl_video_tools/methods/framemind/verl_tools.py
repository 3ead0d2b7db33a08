"""The tools as verl's own tool loop offers them (docs/stock-tool-loop.md)."""

from __future__ import annotations

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.frame_at import FrameAt
from verl_video_tools.methods.framemind.video_clip import VideoClip

FRAME_AT = vt.ToolDescription(
    name=FrameAt.name,
    description=(
        "Look closer at one moment: shows the frame nearest to a time in high resolution, then tells its time."
    ),
    parameters={
        "t": ("number", "Time in seconds from the start of the video."),
    },
)

VIDEO_CLIP = vt.ToolDescription(
    name=VideoClip.name,
    description=(
        "Look closer at a part of the video: shows frames spread evenly from t_start to t_end in high resolution, then "
        "lists their times in the order shown."
    ),
    parameters={
        "t_start": ("number", "Where the part starts, in seconds from the start of the video."),
        "t_end": ("number", "Where the part ends, in seconds; not before t_start, within the video."),
    },
)

TOOL_DESCRIPTIONS = (
    FRAME_AT,
    VIDEO_CLIP,
)
