"""FrameMind's `FrameAt`: the one frame nearest to a time, at high resolution (paper appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import fit_envelope


@dataclass(frozen=True, kw_only=True)
class FrameAt:
    """Shows the frame nearest to `t` seconds, half way the later one; the end of the video gives its last frame.

    Attributes:
        side_pixels: side of the square that the frame is scaled to, whatever its aspect ratio (paper B.2).

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
        seconds = time_argument(arguments, "t", context.info)
        width, height = fit_envelope(self.side_pixels, self.side_pixels, context.envelope)
        request = vt.FrameRequest(width=width, height=height, seconds=(seconds,), rounding="nearest")
        return vt.ToolPlan(frames=request, result={"t": seconds})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """One frame (`Method.max_cost_call`)."""
        return vt.spread_frames(info, 1, fit_envelope(self.side_pixels, self.side_pixels, envelope))


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
