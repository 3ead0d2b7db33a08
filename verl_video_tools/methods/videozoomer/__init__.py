"""VideoZoomer: everything of the method."""

from verl_video_tools.methods.videozoomer.method import VideoZoomer

__all__ = ["VideoZoomer"]
