"""What the failures of a call come to."""

from __future__ import annotations

from verl_video_tools.core.errors import CallErrorCode, DeadlineError, RetrievalError, ToolModelError, VideoError


def failure_code(error: RetrievalError | ToolModelError | VideoError) -> CallErrorCode:
    """The code of a call that failed through no fault of the policy."""
    if isinstance(error, RetrievalError):
        return CallErrorCode.RETRIEVAL_ERROR
    if isinstance(error, ToolModelError):
        return CallErrorCode.MODEL_ERROR
    return CallErrorCode.DEADLINE if isinstance(error, DeadlineError) else CallErrorCode.VIDEO_ERROR
