"""Tool classes for verl's own tool loop, by the names that a tool YAML gives (docs/stock-tool-loop.md)."""

from __future__ import annotations

from verl_video_tools.verl_plugin.stock_tools import SearchTool, VideoTool


class ChooseFramesTool(VideoTool):
    """FrameThinker's zoom (`methods.framethinker.method`): pictures, then one line that names them in their
    order."""

    method_name = "framethinker"
    tool_name = "choose_frames"


class GetFrameNumberTool(VideoTool):
    """FrameThinker's clock (`methods.framethinker.method`): one sentence, no picture."""

    method_name = "framethinker"
    tool_name = "get_frame_number"


class VideoZoomTool(VideoTool):
    """VideoZoomer's zoom (`methods.videozoomer.method`): pictures, then one line that gives their times in their
    order."""

    method_name = "videozoomer"
    tool_name = "video_zoom"


class CropVideoTool(VideoTool):
    """LongVT's crop (`methods.longvt.method`): pictures, then one line that lists their times in their order."""

    method_name = "longvt"
    tool_name = "crop_video"


class FrameAtTool(VideoTool):
    """FrameMind's single frame (`methods.framemind.method`): a picture, then one line with its time."""

    method_name = "framemind"
    tool_name = "FrameAt"


class VideoClipTool(VideoTool):
    """FrameMind's clip (`methods.framemind.method`): pictures, then one line that lists their times in order."""

    method_name = "framemind"
    tool_name = "VideoClip"


class UniformSampleTool(VideoTool):
    """VideoBrain's uniform agent (`methods.videobrain.method`): pictures, then one line that names them in
    their order."""

    method_name = "videobrain"
    tool_name = "uniform_sample"


class ClipSampleTool(SearchTool):
    """VideoBrain's CLIP agent (`methods.videobrain.method`): pictures, then one line that names them in their
    order."""

    method_name = "videobrain"
    tool_name = "clip_sample"
