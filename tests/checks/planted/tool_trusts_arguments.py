"""A tool that takes an argument for granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import CropVideo, LongVT

CAUGHT_BY = "tools_refuse_by_code"


@dataclass(frozen=True, kw_only=True)
class Trusting(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `wrong_video`, `out_of_range`, `reversed_segment` or
        `segment_too_short`."""
        if arguments["end_time"] == arguments["start_time"]:
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, "the segment is empty")
        return await super().plan(arguments, context)


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        (crop,) = super().tools(info).values()
        assert isinstance(crop, CropVideo)
        return {crop.name: Trusting(**{own.name: getattr(crop, own.name) for own in fields(crop)})}
