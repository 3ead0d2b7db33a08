"""A tool that takes every video to have 30 frames a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import CropVideo, LongVT

CAUGHT_BY = "plans_show_the_stretch_asked_for"


@dataclass(frozen=True, kw_only=True)
class Hasty(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `wrong_video`, `out_of_range`, `reversed_segment` or
        `segment_too_short`."""
        plan = await super().plan(arguments, context)
        assert plan.frames is not None
        last = context.info.num_frames - 1
        indices = tuple(min(round(seconds * 30), last) for seconds in plan.frames.seconds or ())
        return replace(plan, frames=replace(plan.frames, seconds=None, indices=indices))


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        (crop,) = super().tools(info).values()
        assert isinstance(crop, CropVideo)
        return {crop.name: Hasty(**{own.name: getattr(crop, own.name) for own in fields(crop)})}
