"""What a call says: how its arguments are read, which calls are refused, and what the model may read of a refusal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_video_tools.core.errors import CallError, CallErrorCode, CallRejected
from verl_video_tools.core.regions import frame_edges
from verl_video_tools.core.types import (
    Box,
    BoxUnit,
    CallRecord,
    Compat,
    ParsedTurn,
    PixelBox,
    Region,
    ToolCall,
    ToolContext,
    VideoInfo,
)

# ---------------------------------------------------------------------------------------------------------------- times


LABEL_ROUNDING_SECONDS = 0.05
"""Models read times rounded to a tenth of a second. The label of the last frame may therefore name a time that is this
much after the end."""


def snap_to_end(seconds: float, duration_seconds: float) -> float:
    """The end of the video for a time after it by at most the rounding of a label; any other time unchanged."""
    is_at_end = duration_seconds < seconds <= duration_seconds + LABEL_ROUNDING_SECONDS
    return duration_seconds if is_at_end else seconds


def seconds_argument(arguments: Mapping[str, Any], name: str) -> float:
    """The argument as a time in seconds.

    Raises:
        CallRejected: `malformed_call` if it is not a finite number.
    """
    value = arguments.get(name)
    seconds = finite_number(value, read_text=False)
    if seconds is None:
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"{name} must be a number of seconds, got {value!r:.80}")
    return seconds


def time_argument(arguments: Mapping[str, Any], name: str, info: VideoInfo) -> float:
    """The argument as a time of the video in seconds. A time after the end by at most the rounding of a label is the
    end.

    Raises:
        CallRejected: `malformed_call` if it is not a finite number, `out_of_range` if it is outside the video.
    """
    seconds = snap_to_end(seconds_argument(arguments, name), info.duration_seconds)
    if not 0 <= seconds <= info.duration_seconds:
        raise CallRejected(
            CallErrorCode.OUT_OF_RANGE,
            f"{name} {seconds:g} is outside the video, which lasts from 0 to {format_seconds(info.duration_seconds)} s",
        )
    return seconds


def finite_number(value: Any, *, read_text: bool) -> float | None:
    """`value`, an argument of a call from JSON, as a finite number; None if it is not one.

    Args:
        read_text: read texts such as ``"12.5"``, too.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str) if read_text else (int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def format_seconds(seconds: float, decimals: int = 2) -> str:
    """A duration as a model reads it. It is rounded down, because a call for a rounded-up time would be refused."""
    rounded = round(seconds, decimals)
    return f"{rounded if rounded <= seconds else rounded - 10**-decimals:.{decimals}f}"


def span_argument(arguments: Mapping[str, Any], duration_seconds: float) -> tuple[float, float]:
    """Start and end of ``{"start_time": seconds, "end_time": seconds}`` with 0 <= start <= end <= duration. Equal times
    are a moment.

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


# --------------------------------------------------------------------------------------------- videos and frame numbers


def video_argument(arguments: Mapping[str, Any], context: ToolContext) -> tuple[int, VideoInfo]:
    """Position of the video in `ToolContext.videos`, from 0, and its facts. A call that names no video means the first
    one.

    Raises:
        CallRejected: `malformed_call` if the argument is not a whole number, `wrong_video` if the row has no such
            video.
    """
    videos = context.videos or (context.info,)
    number = arguments.get("video")
    if number is None:
        return 0, context.info
    if isinstance(number, bool) or not isinstance(number, int):
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"video must be a whole number from 1, got {number!r:.80}")
    if not 1 <= number <= len(videos):
        raise CallRejected(CallErrorCode.WRONG_VIDEO, f"video {number} does not exist; there are 1 to {len(videos)}")
    return number - 1, videos[number - 1]


def read_frame_range(arguments: Mapping[str, Any], num_frames: int, compat: Compat) -> tuple[int, int]:
    """``{"start_frame": number, "end_frame": number}`` as whole numbers with 0 <= start < end <= num_frames.

    Numbers are truncated, because a policy computes them from times. With `compat="reference"`, everything that
    Python's `int` accepts is a number, for example a text in quotes, and an end after the video is the end of the
    video, as in the published code.

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
    value = arguments.get(name)
    number: Any = value if compat == "reference" else finite_number(value, read_text=False)
    try:
        return int(number)
    except (TypeError, ValueError, OverflowError) as error:
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"{name} must be a frame number, got {value!r:.80}") from error


# ---------------------------------------------------------------------------------------------------------------- boxes


UNIT_IN_WORDS: Mapping[BoxUnit, str] = {
    "normalised": "as shares of the frame's width and height, from 0 to 1",
    "thousandths": "in thousandths of the frame's width and height, from 0 to 1000",
    "pixels": "in pixels of the video's frame",
}


def box_in_words(unit: BoxUnit) -> str:
    """The form of a box, for the description of a parameter."""
    return f"[left, top, right, bottom] {UNIT_IN_WORDS[unit]}; the upper left corner is [0, 0]."


def region_argument(
    arguments: Mapping[str, Any], name: str, size: tuple[int, int], unit: BoxUnit, min_side_pixels: int = 1
) -> tuple[Region, PixelBox]:
    """The argument ``[left, top, right, bottom]`` as a box of the displayed frame: in the unit of the call, and in
    whole pixels.

    Args:
        size: width and height of the frame in pixels.
        unit: unit of the numbers.
        min_side_pixels: least length of both sides, in pixels of the frame.

    Raises:
        CallRejected: `malformed_call` if it is not four finite numbers, `reversed_box`, `box_outside` or
            `box_too_small`; the message states what is allowed.
    """
    value = arguments.get(name)
    numbers = value if isinstance(value, list | tuple) and len(value) == 4 else ()
    edges = [edge for number in numbers if (edge := finite_number(number, read_text=False)) is not None]
    if len(edges) != 4:
        raise CallRejected(
            CallErrorCode.MALFORMED_CALL, f"{name} must be [left, top, right, bottom], four numbers, got {value!r:.80}"
        )
    box = Box(*edges)
    text = format_box(box)
    if box.right < box.left or box.bottom < box.top:
        raise CallRejected(
            CallErrorCode.REVERSED_BOX, f"{name} {text} ends before it starts; give [left, top, right, bottom]"
        )
    right, bottom = frame_edges(unit, *size)
    if min(box) < 0 or box.right > right or box.bottom > bottom:
        raise CallRejected(
            CallErrorCode.BOX_OUTSIDE,
            f"{name} {text} leaves the frame, which is {format_box((0, 0, right, bottom))}",
        )
    if not box.is_proper():
        raise CallRejected(CallErrorCode.BOX_TOO_SMALL, f"{name} {text} covers nothing of the frame")
    region = Region(box, unit)
    pixels = region.in_pixels(*size)
    if min(pixels.width, pixels.height) < min_side_pixels:
        min_sides = [edge * min_side_pixels / side for edge, side in zip((right, bottom), size, strict=True)]
        raise CallRejected(
            CallErrorCode.BOX_TOO_SMALL,
            f"{name} {text} covers {pixels.width}x{pixels.height} pixels, and each side must have {min_side_pixels}: "
            f"make it at least {min_sides[0]:.4g} wide and {min_sides[1]:.4g} high",
        )
    return region, pixels


def format_box(box: Sequence[float]) -> str:
    """A box as a model reads it, with at most four significant digits after the point: ``[0.25, 0, 0.5, 1]``."""
    return "[" + ", ".join(f"{edge:.6g}" for edge in box) + "]"


# ------------------------------------------------------------------------------------------------------------- refusals


UNKNOWN = "unknown"
"""Name in the record of a call that names no tool."""

_REPORTED_WITHOUT_REASON: dict[str, str] = {
    CallErrorCode.VIDEO_ERROR: "the frames could not be read",
    CallErrorCode.DEADLINE: "the frames could not be read",
    CallErrorCode.RETRIEVAL_ERROR: "frames could not be searched",
    CallErrorCode.MODEL_ERROR: "the model of this tool could not be asked",
}
"""Failures that are not the policy's. Their own words may name the file, and its name may hold the answer."""


def format_error(record: CallRecord) -> CallError:
    """The error of a record as the model reads it. If the policy is not the cause, the text says only what failed."""
    assert record.error is not None, "only a call that was not carried out has an error"
    code = record.error.code
    return CallError(code, _REPORTED_WITHOUT_REASON[code]) if code in _REPORTED_WITHOUT_REASON else record.error


def malformed_call(text: str, why: str, advice: str, name: str = UNKNOWN) -> ToolCall:
    """A call that cannot be read (`malformed_call`). Its record has the beginning of its text."""
    error = CallError(CallErrorCode.MALFORMED_CALL, f"{why}; {advice}")
    return ToolCall(name, {"text": text.strip()[:200]}, error)


def multiple_calls(count: int, calls: str, block: str) -> CallError:
    """The error of a turn with several calls, if the grammar allows one."""
    return CallError(CallErrorCode.MULTIPLE_CALLS, f"{count} {calls} in one turn; write exactly one {block}")


def refuse_surplus_calls(parsed: ParsedTurn, max_calls: int) -> ParsedTurn:
    """The turn with its calls after the first `max_calls` refused (`multiple_calls`). Malformed calls stay
    malformed."""
    error = CallError(CallErrorCode.MULTIPLE_CALLS, f"at most {max_calls} calls in one turn are carried out")
    surplus = (replace(call, error=call.error or error) for call in parsed.calls[max_calls:])
    return replace(parsed, calls=(*parsed.calls[:max_calls], *surplus))
