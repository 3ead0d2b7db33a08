"""FrameThinker's zoom: a fixed number of frames spread over a segment given by two frame numbers (paper 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import (
    Compat,
    FrameRequest,
    PixelEnvelope,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.frames import spread_frames
from verl_video_tools.video.resize import fit_box
from verl_video_tools.video.sampling import linspace_indices

NUMBER_AND_TIME = "frame {frame.index} ({frame.timestamp_seconds:.2f} s)"
"""How verl's own tool loop labels the frames of tools that take frame numbers (`ToolDescription.frame_label`)."""


@dataclass(frozen=True, kw_only=True)
class ChooseFrames:
    """Shows `num_frames` frames strictly between `start_frame` and `end_frame`, spread evenly.

    Both ends are exclusive, so a segment needs `end_frame - start_frame >= num_frames + 1`, and `end_frame` may be the
    number of frames in the video (one past the last).

    Attributes:
        num_frames: frames shown per call.
        box_width, box_height: pixels; a frame is shrunk to fit, keeping its aspect ratio, and never enlarged.
        compat: `reference` takes an end beyond the video as the video's end, and truncates sizes as the published code
            does.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "choose_frames"
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows a fixed number of frames spread evenly between two frame "
            "numbers, both exclusive, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("integer", "Frame number after which the segment starts, from 0."),
            "end_frame": ("integer", "Frame number before which the segment ends; at most the number of frames."),
        },
        frame_label=NUMBER_AND_TIME,
    )

    num_frames: int
    box_width: int
    box_height: int
    compat: Compat = "strict"

    def __post_init__(self) -> None:
        for name in ("num_frames", "box_width", "box_height"):
            require(self, name, getattr(self, name) >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Frames for ``{"start_frame": int, "end_frame": int}``. The result has the times of the range
        (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `reversed_segment`, `out_of_range` or `segment_too_short`.
            VideoError: the file cannot be asked for times.
        """
        start, end = (_frame_number(arguments, name) for name in ("start_frame", "end_frame"))
        last_end = context.info.num_frames
        if self.compat == "reference":
            if not 0 <= start <= last_end:
                raise CallRejected(
                    CallErrorCode.OUT_OF_RANGE,
                    f"start {start!s:.80} is outside the video; frame numbers run from 0 to {last_end - 1}",
                )
            end = min(end, last_end)
        elif start > end:
            raise CallRejected(
                CallErrorCode.REVERSED_SEGMENT, f"start {start!s:.80} is after end {end!s:.80}; give START < END"
            )
        elif start < 0 or start >= last_end or end > last_end:
            raise CallRejected(
                CallErrorCode.OUT_OF_RANGE,
                f"segment {start!s:.80} to {end!s:.80} is outside the video; "
                f"frame numbers run from 0 to {last_end - 1}",
            )
        if end - start < self.num_frames + 1:
            raise CallRejected(
                CallErrorCode.SEGMENT_TOO_SHORT,
                f"segment {start} to {end!s:.80} is too short for {self.num_frames} frames; "
                f"END must be at least START + {self.num_frames + 1}",
            )
        width, height = self.frame_size(context.info, context.envelope)
        indices = linspace_indices(start + 1, end - 1, self.num_frames)
        return ToolPlan(
            frames=FrameRequest(width=width, height=height, indices=indices),
            result=await context.range_seconds(start + 1, end - 1),
        )

    def most_expensive_call(self, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        """A call for the whole video."""
        return spread_frames(info, self.num_frames, self.frame_size(info, envelope))

    def frame_size(self, info: VideoInfo, envelope: PixelEnvelope) -> tuple[int, int]:
        """Width and height of a shown frame in pixels."""
        rounding: Literal["floor", "nearest"] = "floor" if self.compat == "reference" else "nearest"
        return fit_box(info.width, info.height, self.box_width, self.box_height, envelope, rounding=rounding)


def _frame_number(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"{name} must be a whole frame number, got {value!r:.80}")
    return value
