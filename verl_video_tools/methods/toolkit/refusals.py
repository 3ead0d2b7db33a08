"""What the model may read of a call that was not carried out."""

from __future__ import annotations

from verl_video_tools.core.errors import CallErrorCode
from verl_video_tools.core.types import CallRecord

_TOLD_WITHOUT_REASON: dict[str, str] = {
    CallErrorCode.VIDEO_ERROR: "the frames could not be read",
    CallErrorCode.DEADLINE: "the frames could not be read",
    CallErrorCode.RETRIEVAL_ERROR: "frames could not be searched",
}
"""Failures that are not the policy's. Their own words may name the file, and its name may hold the answer."""


def told_error(record: CallRecord) -> str:
    """The record's error; of a failure that is not the policy's no more than what it came to."""
    assert record.error is not None, "only a call that was not carried out has an error"
    code = record.error.partition(":")[0]
    return f"{code}: {_TOLD_WITHOUT_REASON[code]}" if code in _TOLD_WITHOUT_REASON else record.error
