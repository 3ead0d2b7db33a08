"""Frames of a call at a size of its own: the processor resizes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer
from verl_video_tools.methods.videozoomer.video_zoom import VideoZoom

CAUGHT_BY = "plans_fit_the_processor"


@dataclass(frozen=True, kw_only=True)
class Sized(VideoZoom):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `reversed_segment`, `out_of_range`, `segment_too_short` or
        `too_many_frames`."""
        plan = await super().plan(arguments, context)
        assert plan.frames is not None
        return replace(plan, frames=replace(plan.frames, width=100, height=100))

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return replace(super().most_expensive_call(info, envelope), width=100, height=100)


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {Sized.name: Sized(max_frames=self.call_frames, max_pixels=self.max_pixels)}
