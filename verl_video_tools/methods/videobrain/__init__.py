"""VideoBrain: everything of the method."""

from verl_video_tools.methods.videobrain.method import ToolName, VideoBrain

__all__ = ["ToolName", "VideoBrain"]
