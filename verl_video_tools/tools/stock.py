"""Tool classes for verl's own tool loop, by the names that a tool YAML gives (docs/stock-tool-loop.md)."""

from verl_video_tools.verl_plugin.stock_tools import (
    ChooseFramesTool,
    ClipSampleTool,
    CropVideoTool,
    FrameAtTool,
    GetFrameNumberTool,
    UniformSampleTool,
    VideoClipTool,
    VideoTool,
    VideoZoomTool,
)

__all__ = [
    "ChooseFramesTool",
    "ClipSampleTool",
    "CropVideoTool",
    "FrameAtTool",
    "GetFrameNumberTool",
    "UniformSampleTool",
    "VideoClipTool",
    "VideoTool",
    "VideoZoomTool",
]
