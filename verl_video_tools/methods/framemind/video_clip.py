"""FrameMind's `VideoClip`: 8 to 20 frames of an interval, at high resolution (paper appendix B)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from verl_video_tools.core.types import Rounding
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.frame_at import Resize, frame_size, request_times, time_argument

Endpoints = Literal["inclusive", "half_open"]


@dataclass(frozen=True, kw_only=True)
class VideoClip:
    """Shows frames spread evenly from `t_start` to `t_end` seconds, each frame once.

    None begins after `t_end`. The paper says "8 to 20" without a rule; ours is `frames_per_second`, kept within these
    bounds. An interval that holds fewer frames shows those that it has.

    Attributes:
        min_frames, max_frames: bounds on the number of frames; equal ones fix it.
        frames_per_second: frames shown per second of the interval, between the bounds.
        endpoints: whether the frame at `t_end` is shown.
        empty: what an interval of no length gives: the one `frame` there, or an `error`.
        side_pixels, resize, rounding: as for `FrameAt`.

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
    frames_per_second: float
    side_pixels: int
    endpoints: Endpoints = "inclusive"
    empty: Literal["frame", "error"] = "frame"
    resize: Resize = "square"
    rounding: Rounding = "nearest"

    def __post_init__(self) -> None:
        for name in ("min_frames", "side_pixels"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")
        vt.require(self, "max_frames", self.max_frames >= self.min_frames, f"at least min_frames, {self.min_frames}")
        vt.require(self, "frames_per_second", 0.0 < self.frames_per_second < math.inf, "a finite number above 0")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"t_start": seconds, "t_end": seconds}``; the result repeats the numbers.

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_segment`, or `segment_too_short` for an interval
                of no length where that is an error.
            VideoError: the file cannot be asked which frames are shown when.
        """
        start, end = (time_argument(arguments, name, context.info) for name in ("t_start", "t_end"))
        if end < start:
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, f"t_end={end:g} is before t_start={start:g}")
        if end == start and self.empty == "error":
            raise vt.CallRejected(vt.CallErrorCode.SEGMENT_TOO_SHORT, f"t_start and t_end are both {start:g}")
        num_inside = None
        if self.endpoints == "half_open":
            num_inside = await context.index_at(end) - await context.index_at(start) + 1
        times = request_times(self._times(start, end, num_inside), context.info, self.rounding)
        first, last = request_times((start, end), context.info, self.rounding)
        width, height = frame_size(context.info, self.side_pixels, self.resize, context.envelope)
        request = vt.FrameRequest(
            width=width,
            height=height,
            seconds=times,
            rounding=self.rounding,
            unique=True,
            within=(first, last),
        )
        return vt.ToolPlan(frames=request, result={"t_start": start, "t_end": end})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A clip of the whole video."""
        return vt.spread_frames(info, self.max_frames, frame_size(info, self.side_pixels, self.resize, envelope))

    def frame_numbers(self, start: float, end: float, info: vt.VideoInfo) -> list[int]:
        """Numbers of the frames of a clip, ascending, in a video of an even rate."""
        first, last = _frame_numbers((start, end), info, "shown").tolist()
        times = self._times(start, end, last - first + 1)
        numbers: list[int] = np.unique(_frame_numbers(times, info, self.rounding).clip(first, last)).tolist()
        return numbers

    def _times(self, start: float, end: float, num_inside: int | None) -> tuple[float, ...]:
        """Times to ask for. Several may mean one frame: which ones do, the file alone knows where the rate varies.

        Args:
            num_inside: frames of the video from the one shown at `start` to the one shown at `end`; None: any number.
        """
        if end == start:
            return (start,)
        count = min(max(math.floor(self.frames_per_second * (end - start) + 0.5), self.min_frames), self.max_frames)
        if self.endpoints == "half_open" and num_inside is not None:
            count = min(count, num_inside)  # the last of closer times would mean the frame at the end
        times = np.linspace(start, end, count, endpoint=self.endpoints == "inclusive")
        return tuple(float(time) for time in times)


def _frame_numbers(times_seconds: Sequence[float], info: vt.VideoInfo, rounding: Rounding) -> np.ndarray:
    """Numbers of the frames that times mean in a video of an even rate."""
    half = 0.5 if rounding == "nearest" else 0.0
    numbers = np.floor(np.array(times_seconds) * info.average_fps + half + 1e-6)
    return np.minimum(numbers, info.num_frames - 1).astype(int)
