"""FrameMind's two tools (paper appendix B): the frame nearest to a time, and 8 to 20 frames of an interval.

Frames are stretched to a square, whatever their aspect ratio (paper B.2; gap 7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import fit_envelope

FRAMES_PER_SECOND = 2.0
"""Frames of a clip per second, between its bounds (ours, gap 3: the paper says "8 to 20" without a rule)."""


@dataclass(frozen=True, kw_only=True)
class FrameAt:
    """Shows the frame nearest to `t` seconds, half way the later one; the end of the video gives its last frame.

    Attributes:
        side_pixels: side of the square that the frame is scaled to.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "FrameAt"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at one moment: shows the frame nearest to a time in high resolution, then tells its time."
        ),
        parameters={
            "t": ("number", "Time in seconds from the start of the video."),
        },
    )

    side_pixels: int

    def __post_init__(self) -> None:
        vt.require(self, "side_pixels", self.side_pixels >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """The frame for ``{"t": seconds}``; the result repeats the number.

        Raises:
            CallRejected: `malformed_call` or `out_of_range`.
        """
        seconds = _time_argument(arguments, "t", context.info)
        width, height = fit_envelope(self.side_pixels, self.side_pixels, context.envelope)
        request = vt.FrameRequest(width=width, height=height, seconds=(seconds,), rounding="nearest")
        return vt.ToolPlan(frames=request, result={"t": seconds})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """One frame."""
        return vt.spread_frames(info, 1, fit_envelope(self.side_pixels, self.side_pixels, envelope))


@dataclass(frozen=True, kw_only=True)
class VideoClip:
    """Shows frames spread evenly from `t_start` to `t_end` seconds, both included (ours, gap 4), each frame once.

    None begins after `t_end`. An interval that holds fewer frames shows those that it has, one of no length a single
    frame (ours, gap 5).

    Attributes:
        min_frames, max_frames: bounds on the number of frames, which is `FRAMES_PER_SECOND` times the length.
        side_pixels: as for `FrameAt`.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "VideoClip"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows frames spread evenly from t_start to t_end in high resolution, "
            "then lists their times in the order shown."
        ),
        parameters={
            "t_start": ("number", "Where the part starts, in seconds from the start of the video."),
            "t_end": ("number", "Where the part ends, in seconds; not before t_start, within the video."),
        },
    )

    min_frames: int
    max_frames: int
    side_pixels: int

    def __post_init__(self) -> None:
        for name in ("min_frames", "side_pixels"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")
        vt.require(self, "max_frames", self.max_frames >= self.min_frames, f"at least min_frames, {self.min_frames}")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"t_start": seconds, "t_end": seconds}``; the result repeats the numbers.

        Raises:
            CallRejected: `malformed_call`, `out_of_range` or `reversed_segment`.
        """
        start, end = (_time_argument(arguments, name, context.info) for name in ("t_start", "t_end"))
        if end < start:
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, f"t_end={end:g} is before t_start={start:g}")
        width, height = fit_envelope(self.side_pixels, self.side_pixels, context.envelope)
        request = vt.FrameRequest(
            width=width,
            height=height,
            seconds=self._times(start, end),
            rounding="nearest",
            unique=True,
            within=(start, end),
        )
        return vt.ToolPlan(frames=request, result={"t_start": start, "t_end": end})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A clip of the whole video."""
        return vt.spread_frames(info, self.max_frames, fit_envelope(self.side_pixels, self.side_pixels, envelope))

    def frame_numbers(self, start: float, end: float, info: vt.VideoInfo) -> list[int]:
        """Numbers of the frames of a clip, ascending, in a video of an even rate."""
        first, last = _number_at(start, info), _number_at(end, info)
        nearest = {_number_at(time + 0.5 / info.average_fps, info) for time in self._times(start, end)}
        return sorted({min(max(number, first), last) for number in nearest})

    def _times(self, start: float, end: float) -> tuple[float, ...]:
        """Times to ask for. Several may mean one frame: which ones do, the file alone knows where the rate varies."""
        if end == start:
            return (start,)
        count = min(max(math.floor(FRAMES_PER_SECOND * (end - start) + 0.5), self.min_frames), self.max_frames)
        return tuple(np.linspace(start, end, count).tolist())


def _time_argument(arguments: Mapping[str, Any], name: str, info: vt.VideoInfo) -> float:
    """A time within the video, in seconds; the end for one beyond it by no more than a label's rounding.

    Raises:
        CallRejected: `malformed_call` if it is no number, `out_of_range` outside the video.
    """
    seconds = vt.snap_to_end(vt.seconds_argument(arguments, name), info.duration_seconds)
    if not 0 <= seconds <= info.duration_seconds:
        raise vt.CallRejected(
            vt.CallErrorCode.OUT_OF_RANGE,
            f"{name}={seconds:g} is outside the video, from 0 to {vt.format_seconds(info.duration_seconds)} seconds",
        )
    return seconds


def _number_at(seconds: float, info: vt.VideoInfo) -> int:
    """Number of the frame on screen at a time, in a video of an even rate; a millionth of a frame is float error."""
    return min(math.floor(seconds * info.average_fps + 1e-6), info.num_frames - 1)
