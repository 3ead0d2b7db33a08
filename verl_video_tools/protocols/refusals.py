"""What the model may read of a call that was not carried out."""

from __future__ import annotations

from verl_video_tools.errors import CallErrorCode
from verl_video_tools.types import CallRecord

_READING_FAILED = (CallErrorCode.VIDEO_ERROR, CallErrorCode.DEADLINE)


def told_error(record: CallRecord) -> str:
    """The record's error, except where reading failed: those words name the file, and its name may hold the answer."""
    assert record.error is not None, "only a call that was not carried out has an error"
    code = record.error.partition(":")[0]
    return f"{code}: the frames could not be read" if code in _READING_FAILED else record.error
