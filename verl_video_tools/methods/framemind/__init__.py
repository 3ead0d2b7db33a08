"""FrameMind: everything of the method."""

from verl_video_tools.methods.framemind.method import FrameMind, resolution_ladder

__all__ = ["FrameMind", "resolution_ladder"]
