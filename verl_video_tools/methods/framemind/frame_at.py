"""FrameMind's `FrameAt`: the one frame nearest to a time, at high resolution (paper appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from verl_video_tools.core.types import Rounding
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import fit_envelope

Resize = Literal["square", "area"]


@dataclass(frozen=True, kw_only=True)
class FrameAt:
    """Shows the frame nearest to `t` seconds; the end of the video gives its last frame.

    Attributes:
        side_pixels: side of the square, or root of the area, that the frame is scaled to.
        resize: `square` ignores the aspect ratio (paper), `area` keeps it.
        rounding: `nearest` frame, half way the later one; or the one `shown` at that time.

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
    resize: Resize = "square"
    rounding: Rounding = "nearest"

    def __post_init__(self) -> None:
        vt.require(self, "side_pixels", self.side_pixels >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """The frame for ``{"t": seconds}``; the result repeats the number.

        Raises:
            CallRejected: `malformed_call` or `out_of_range`.
        """
        seconds = time_argument(arguments, "t", context.info)
        width, height = frame_size(context.info, self.side_pixels, self.resize, context.envelope)
        times = request_times((seconds,), context.info, self.rounding)
        request = vt.FrameRequest(width=width, height=height, seconds=times, rounding=self.rounding)
        return vt.ToolPlan(frames=request, result={"t": seconds})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """One frame."""
        return vt.spread_frames(info, 1, frame_size(info, self.side_pixels, self.resize, envelope))


def time_argument(arguments: Mapping[str, Any], name: str, info: vt.VideoInfo) -> float:
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


def request_times(times_seconds: tuple[float, ...], info: vt.VideoInfo, rounding: Rounding) -> tuple[float, ...]:
    """Times to ask for with a `FrameRequest` of that rounding.

    Where the frame shown is wanted, a microsecond more keeps float error from showing the frame before.
    """
    if rounding == "nearest":
        return times_seconds
    return tuple(min(time + 1e-6, info.duration_seconds) for time in times_seconds)


def frame_size(info: vt.VideoInfo, side_pixels: int, resize: Resize, envelope: vt.PixelEnvelope) -> tuple[int, int]:
    """Width and height in pixels of a frame that is scaled, up or down, to an area of `side_pixels` squared."""
    if resize == "square":
        return fit_envelope(side_pixels, side_pixels, envelope)
    aspect_root = (info.width / info.height) ** 0.5
    return fit_envelope(max(1, round(side_pixels * aspect_root)), max(1, round(side_pixels / aspect_root)), envelope)
