"""A tool that draws a picture of its own: where something moves. LongVT shows it beside its crop.

vvt replay --method examples.motion_map.motion_map:LongVTMotionMap --video VIDEO --question "Where is it?" --answer B \
    --turns examples/motion_map/turns.json --html motion.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.video import uniform_seconds

RED = np.array([255, 0, 0], dtype=np.int32)


def heat_map(frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The mean of the frames in grey, the redder the more a pixel changes from frame to frame.

    Whole numbers alone, so that the same frames give the same picture on every machine: a rollout that is replayed
    shows what it showed when it was recorded.

    Returns:
        uint8, shape (H, W, 3).
    """
    grey_THW = frames_THWC.astype(np.int32).sum(axis=-1) // 3
    motion_HW1 = np.abs(np.diff(grey_THW, axis=0)).max(axis=0)[..., None]
    still_HW1 = grey_THW.sum(axis=0)[..., None] // len(grey_THW)
    most = max(1, int(motion_HW1.max()))
    return ((still_HW1 * (most - motion_HW1) + RED * motion_HW1) // most).astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class MotionMap:
    """Draws where something moves in a part of the video.

    The picture is made while the call is planned, so that it counts towards the budgets before the policy gets it. The
    tool looks at frames through the context: these cost the policy nothing.
    """

    name: ClassVar[str] = "motion_map"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description="Draws a picture of a part of the video that is red where something moves.",
        parameters={
            "start_time": ("number", "Start of the part, in seconds."),
            "end_time": ("number", "End of the part, in seconds."),
        },
    )

    num_frames: int
    min_pixels: int
    max_pixels: int

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """A picture for ``{"start_time": seconds, "end_time": seconds}``.

        Raises:
            CallRejected: `malformed_call`, `reversed_segment` or `out_of_range`.
            VideoError: the frames cannot be decoded.
        """
        start, end = vt.span_argument(arguments, context.info.duration_seconds)
        if context.decode is None:
            raise vt.VideoError("this loop lets no tool look at frames")
        width, height = vt.frame_size(context.info, self.min_pixels, self.max_pixels, context.envelope)
        request = vt.FrameRequest(width=width, height=height, seconds=uniform_seconds(start, end, self.num_frames))
        frames = [image.pixels_HWC for image in await context.decode(request) if image.pixels_HWC is not None]
        return vt.ToolPlan(
            text=f"Red is what moves from {start:g} s to {end:g} s:",
            pictures=(heat_map(np.stack(frames)),),
            result={"start_time": start, "end_time": end},
        )

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """One picture, as a frame of its size; budgets reserve for the largest call."""
        width, height = vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)
        return vt.FrameRequest(width=width, height=height, seconds=(0.0,))


@dataclass(frozen=True, kw_only=True)
class LongVTMotionMap(LongVT):
    """LongVT with a second tool: grammar, observations and reward stay."""

    name: ClassVar[str] = "longvt_motion_map"
    check_examples: ClassVar[tuple[str, ...]] = (
        '<think>so</think><tool_call>{"name": "motion_map", "arguments": {"start_time": 2, "end_time": 5}}</tool_call>',
    )
    """Turns that `vvt check-method` tries beside the oracle's."""

    motion_frames: int = 8
    """Frames that a motion map compares, at least 2."""

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        motion = MotionMap(num_frames=self.motion_frames, min_pixels=self.min_pixels, max_pixels=self.max_pixels)
        return {**super().tools(info), motion.name: motion}

    def tool_schemas(self) -> list[dict[str, Any]]:
        about = MotionMap.description
        return [*super().tool_schemas(), vt.tool_schema(about.name, about.description, about.parameters)]
