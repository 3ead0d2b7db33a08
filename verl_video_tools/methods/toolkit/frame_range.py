"""A half-open range of frame numbers, as VideoBrain's tools take it: `start_frame` is shown, `end_frame` is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import Compat
from verl_video_tools.methods.toolkit.arguments import finite_number


def read_frame_range(arguments: Mapping[str, Any], num_frames: int, compat: Compat) -> tuple[int, int]:
    """``{"start_frame": number, "end_frame": number}`` as whole numbers with 0 <= start < end <= num_frames.

    Numbers are truncated, since a policy computes them from times. With `compat="reference"` whatever Python's `int`
    takes is a number, also in quotes, and an end beyond the video means the video's end, as in the published code.

    Raises:
        CallRejected: `malformed_call`, `out_of_range` or `reversed_segment`; the message states what is allowed.
    """
    start, end = (_frame_number(arguments, name, compat) for name in ("start_frame", "end_frame"))
    if start < 0 or start >= num_frames:
        raise CallRejected(
            CallErrorCode.OUT_OF_RANGE, f"start_frame {start!s:.80} must be from 0 to {num_frames - 1}, the last frame"
        )
    if compat == "reference":
        end = min(end, num_frames)
    if end <= start:
        raise CallRejected(
            CallErrorCode.REVERSED_SEGMENT, f"end_frame {end!s:.80} must be larger than start_frame {start}"
        )
    if end > num_frames:
        raise CallRejected(
            CallErrorCode.OUT_OF_RANGE, f"end_frame {end!s:.80} is beyond the video; it must be at most {num_frames}"
        )
    return start, end


def _frame_number(arguments: Mapping[str, Any], name: str, compat: Compat) -> int:
    value: Any = arguments.get(name)
    try:
        return int(value if compat == "reference" else _number(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"{name} must be a frame number, got {value!r:.80}") from error


def _number(value: Any) -> float:
    """Raises ValueError for what is no finite number."""
    number = finite_number(value, read_text=False)
    if number is None:
        raise ValueError("no number")
    return number
