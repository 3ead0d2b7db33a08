"""A reversed segment is turned round, and the tool still says that it refuses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.methods.framemind.video_clip import VideoClip

CAUGHT_BY = "documented_refusals_are_reached"


@dataclass(frozen=True, kw_only=True)
class Swapping(VideoClip):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `out_of_range`, `reversed_segment` or `segment_too_short`."""
        start, end = arguments.get("t_start"), arguments.get("t_end")
        first, second = vt.finite_number(start, read_text=True), vt.finite_number(end, read_text=True)
        if first is not None and second is not None and second < first:
            start, end = end, start
        return await super().plan({**arguments, "t_start": start, "t_end": end}, context)


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        clip = self.video_clip()
        return {
            **super().tools(info),
            clip.name: Swapping(**{own.name: getattr(clip, own.name) for own in fields(clip)}),
        }
