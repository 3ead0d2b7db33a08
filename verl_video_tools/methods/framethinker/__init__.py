"""FrameThinker: everything of the method."""

from verl_video_tools.methods.framethinker.method import ChooseFrames, FrameThinker

__all__ = ["ChooseFrames", "FrameThinker"]
