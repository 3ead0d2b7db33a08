"""VideoBrain's uniform agent: a fixed number of frames spread evenly over a range of frame numbers (paper 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import Aspect, size_in_box
from verl_video_tools.video.sampling import linspace_indices


@dataclass(frozen=True, kw_only=True)
class UniformSample:
    """Shows `num_frames` frames from `start_frame` to the one before `end_frame`, both included, spread evenly.

    Attributes:
        num_frames: frames shown per call; a range of fewer frames is refused.
        box_width, box_height: pixels that a frame is shown in, see `video.resize.size_in_box`.
        aspect: what becomes of frames of another shape than the box's.
        compat: see `methods.toolkit.calls.read_frame_range`.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "uniform_sample"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows a fixed number of frames spread evenly over a range of frame "
            "numbers, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("number", "First frame of the range, from 0."),
            "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
        },
        frame_label=vt.NUMBER_AND_TIME,
    )

    num_frames: int
    box_width: int
    box_height: int
    aspect: Aspect = "fit"
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        for name in ("num_frames", "box_width", "box_height"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_frame": number, "end_frame": number}``; others are ignored.

        The result repeats the range as it was carried out, ``{"start_frame": int, "end_frame": int}``, with its times
        (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_segment` or `segment_too_short`.
            VideoError: the file cannot be asked for times.
        """
        info = context.info
        start, end = vt.read_frame_range(arguments, info.num_frames, self.compat)
        if end - start < self.num_frames:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT,
                f"{start} to {end} are {end - start} frames; "
                f"end_frame must be at least start_frame + {self.num_frames}",
            )
        width, height = self._frame_size(info, context.envelope)
        indices = linspace_indices(start, end - 1, self.num_frames)
        return vt.ToolPlan(
            frames=vt.FrameRequest(width=width, height=height, indices=indices),
            result={"start_frame": start, "end_frame": end, **await context.range_seconds(start, end - 1)},
        )

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A call for the whole video."""
        return vt.spread_frames(info, self.num_frames, self._frame_size(info, envelope))

    def _frame_size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        return size_in_box(info.width, info.height, self.box_width, self.box_height, envelope, self.aspect)
