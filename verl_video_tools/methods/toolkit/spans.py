"""A span of time in a call: `start_time` and `end_time` in seconds, within the video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.methods.toolkit.arguments import format_seconds, seconds_argument, snap_to_end


def span_argument(arguments: Mapping[str, Any], duration_seconds: float) -> tuple[float, float]:
    """``{"start_time": seconds, "end_time": seconds}`` with 0 <= start <= end <= duration; equal ones are a moment.

    Raises:
        CallRejected: `malformed_call`, `reversed_segment` or `out_of_range`.
    """
    start, end = (seconds_argument(arguments, name) for name in ("start_time", "end_time"))
    if start > end:
        raise CallRejected(
            CallErrorCode.REVERSED_SEGMENT, f"start_time {start:g} is after end_time {end:g}; give start before end"
        )
    start, end = snap_to_end(start, duration_seconds), snap_to_end(end, duration_seconds)
    if start < 0 or end > duration_seconds:
        raise CallRejected(
            CallErrorCode.OUT_OF_RANGE,
            f"{start:g} to {end:g} is not within the video, 0 to {format_seconds(duration_seconds)} seconds",
        )
    return start, end
