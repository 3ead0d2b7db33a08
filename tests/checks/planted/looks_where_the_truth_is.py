"""A tool that shows where the row says that the answer is, whatever the call asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer
from verl_video_tools.methods.videozoomer.video_zoom import VideoZoom

CAUGHT_BY = "plans_do_not_read_the_truth"


@dataclass(frozen=True, kw_only=True)
class Knowing(VideoZoom):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `reversed_segment`, `out_of_range`, `segment_too_short` or
        `too_many_frames`."""
        plan = await super().plan(arguments, context)
        where = context.sample.video_segment_seconds
        assert plan.frames is not None
        return plan if where is None else replace(plan, frames=replace(plan.frames, seconds=where))


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {Knowing.name: Knowing(max_frames=self.call_frames, max_pixels=self.max_pixels)}
