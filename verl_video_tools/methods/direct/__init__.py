"""No tools: the question is answered from the frames shown with it: everything of the method."""

from verl_video_tools.methods.direct.method import Direct

__all__ = ["Direct"]
