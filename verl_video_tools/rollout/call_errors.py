"""What the failures of a call come to."""

from __future__ import annotations

from verl_video_tools.core.errors import CallErrorCode, DeadlineError, RetrievalError, ToolModelError, VideoError
from verl_video_tools.core.types import CallRecord


def is_refused(record: CallRecord) -> bool:
    """Whether the policy is to blame for a call that was not carried out."""
    return not (record.ok or record.failed() or record.found_nothing())


def failure_code(error: RetrievalError | ToolModelError | VideoError) -> CallErrorCode:
    """The code of a call that failed through no fault of the policy."""
    if isinstance(error, RetrievalError):
        return CallErrorCode.RETRIEVAL_ERROR
    if isinstance(error, ToolModelError):
        return CallErrorCode.MODEL_ERROR
    return CallErrorCode.DEADLINE if isinstance(error, DeadlineError) else CallErrorCode.VIDEO_ERROR
