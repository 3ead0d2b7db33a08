"""LongVT: everything of the method."""

from verl_video_tools.methods.longvt.method import LongVT

__all__ = ["LongVT"]
