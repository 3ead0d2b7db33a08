"""A tool of one's own, and LongVT with this tool beside its crop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.toolkit import (
    CallErrorCode,
    CallRejected,
    FrameRequest,
    PixelEnvelope,
    Tool,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
    finite_number,
    frame_size,
    tool_schema,
)
from verl_video_tools.video import uniform_seconds


@dataclass(frozen=True, kw_only=True)
class LookAround:
    """Shows `num_frames` frames from `reach_seconds` before a time to as much after it.

    A tool plans, it does not decode: it says which frames at which size, and the loop asks the budgets before it spends
    anything. A call that makes no sense is refused with a code and a text that the model can act on.
    """

    name: ClassVar[str] = "look_around"
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name,
        description="Shows the moments just before and after a time.",
        parameters={"time": ("number", "The moment, in seconds from the start of the video.")},
    )
    """How a model is told of it; a composition and verl's own tool loop read it, too."""

    num_frames: int
    reach_seconds: float
    min_pixels: int
    max_pixels: int

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Frames for ``{"time": seconds}``. The result is kept in the record; LongVT's reward reads these two fields.

        Raises:
            CallRejected: `malformed_call` or `out_of_range`.
        """
        duration = context.info.duration_seconds
        given = arguments.get("time")
        time = finite_number(given, read_text=False)
        if time is None:
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"time must be a number of seconds, got {given!r:.80}")
        if not 0 <= time <= duration:
            raise CallRejected(CallErrorCode.OUT_OF_RANGE, f"time {time:g} is not within 0 to {duration:.2f} seconds")
        start, end = max(0.0, time - self.reach_seconds), min(duration, time + self.reach_seconds)
        width, height = frame_size(context.info, self.min_pixels, self.max_pixels, context.envelope)
        return ToolPlan(
            frames=FrameRequest(width=width, height=height, seconds=uniform_seconds(start, end, self.num_frames)),
            result={"start_time": start, "end_time": end},
        )

    def most_expensive_call(self, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        """As many frames as a call can show of a video, at their size; `vvt budget` reserves for the largest call."""
        width, height = frame_size(info, self.min_pixels, self.max_pixels, envelope)
        seconds = uniform_seconds(0.0, info.duration_seconds, self.num_frames)
        return FrameRequest(width=width, height=height, seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class LongVTLookAround(LongVT):
    """LongVT with a second tool: grammar, observations and reward stay."""

    name: ClassVar[str] = "longvt_look_around"
    check_examples: ClassVar[tuple[str, ...]] = (
        '<think>so</think><tool_call>{"name": "look_around", "arguments": {"time": 5}}</tool_call>',
    )
    """Turns that `vvt check-method` tries beside the oracle's."""

    around_frames: int = 8
    """Frames of one look around."""
    reach_seconds: float = 2.0
    """How far a look reaches to either side."""

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        around = LookAround(
            num_frames=self.around_frames,
            reach_seconds=self.reach_seconds,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        return {**super().tools(info), around.name: around}

    def tool_schemas(self) -> list[dict[str, Any]]:
        about = LookAround.description
        return [*super().tool_schemas(), tool_schema(about.name, about.description, about.parameters)]
