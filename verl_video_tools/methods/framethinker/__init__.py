"""FrameThinker: everything of the method."""

from verl_video_tools.methods.framethinker.method import FrameThinker

__all__ = ["FrameThinker"]
