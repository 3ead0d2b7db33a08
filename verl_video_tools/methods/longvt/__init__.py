"""LongVT: everything of the method."""

from verl_video_tools.methods.longvt.method import CropVideo, LongVT

__all__ = ["CropVideo", "LongVT"]
