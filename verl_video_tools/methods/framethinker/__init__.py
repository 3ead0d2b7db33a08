"""FrameThinker: everything of the method."""

from verl_video_tools.methods.framethinker.method import FrameThinker, inference_attempts

__all__ = ["FrameThinker", "inference_attempts"]
