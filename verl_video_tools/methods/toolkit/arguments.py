"""Numbers in calls: how arguments are read, and how limits are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import VideoInfo

LABEL_ROUNDING_SECONDS = 0.05
"""Models read times to a tenth of a second: that of the last frame may lie so far beyond the end."""


def snap_to_end(seconds: float, duration_seconds: float) -> float:
    """The end for a time beyond it by no more than a label's rounding; any other time as it is."""
    is_at_end = duration_seconds < seconds <= duration_seconds + LABEL_ROUNDING_SECONDS
    return duration_seconds if is_at_end else seconds


def seconds_argument(arguments: Mapping[str, Any], name: str) -> float:
    """A time in seconds.

    Raises:
        CallRejected: `malformed_call` if it is no finite number.
    """
    value = arguments.get(name)
    seconds = finite_number(value, read_text=False)
    if seconds is None:
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"{name} must be a number of seconds, got {value!r:.80}")
    return seconds


def time_argument(arguments: Mapping[str, Any], name: str, info: VideoInfo) -> float:
    """A time of the video in seconds; the end for one beyond it by no more than a label's rounding.

    Raises:
        CallRejected: `malformed_call` if it is no finite number, `out_of_range` if it is outside the video.
    """
    seconds = snap_to_end(seconds_argument(arguments, name), info.duration_seconds)
    if not 0 <= seconds <= info.duration_seconds:
        raise CallRejected(
            CallErrorCode.OUT_OF_RANGE,
            f"{name} {seconds:g} is outside the video, which lasts from 0 to {format_seconds(info.duration_seconds)} s",
        )
    return seconds


def finite_number(value: Any, *, read_text: bool) -> float | None:
    """`value`, a call's argument from JSON, as a finite number; None if it is none.

    Args:
        read_text: also read text such as ``"12.5"``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str) if read_text else (int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def format_seconds(seconds: float, decimals: int = 2) -> str:
    """A duration as a model reads it: rounded down, since a call for a rounded-up one would be refused."""
    rounded = round(seconds, decimals)
    return f"{rounded if rounded <= seconds else rounded - 10**-decimals:.{decimals}f}"
