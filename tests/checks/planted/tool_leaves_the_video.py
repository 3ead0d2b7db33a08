"""A tool that shows a frame after the end it was given, also after that of the video."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import FrameThinker

CAUGHT_BY = "plans_lie_in_the_video"


@dataclass(frozen=True, kw_only=True)
class Leaving(vt.ChooseFrames):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `reversed_segment`, `out_of_range` or `segment_too_short`."""
        plan = await super().plan(arguments, context)
        assert plan.frames is not None and plan.frames.indices is not None
        indices = (*plan.frames.indices[:-1], int(arguments["end_frame"]))
        return replace(plan, frames=replace(plan.frames, indices=indices))


@dataclass(frozen=True, kw_only=True)
class Planted(FrameThinker):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        made = super().tools(info)
        choose = made[vt.ChooseFrames.name]
        assert isinstance(choose, vt.ChooseFrames)
        return {**made, choose.name: Leaving(**{own.name: getattr(choose, own.name) for own in fields(choose)})}
