"""LongVT: everything of the method."""

from verl_video_tools.methods.longvt.crop_video import CropVideo
from verl_video_tools.methods.longvt.method import LongVT

__all__ = ["CropVideo", "LongVT"]
