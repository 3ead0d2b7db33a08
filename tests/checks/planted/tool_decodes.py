"""A tool that decodes while it plans: budgets are asked too late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.methods.framemind.frame_at import FrameAt
from verl_video_tools.video import Video

CAUGHT_BY = "plans_open_no_video"


@dataclass(frozen=True, kw_only=True)
class Decoding(FrameAt):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call` or `out_of_range`."""
        plan = await super().plan(arguments, context)
        brightness = float(Video(context.sample.video_path).frames_at([arguments["t"]]).frames_THWC.mean())
        return vt.ToolPlan(frames=plan.frames, result={**plan.result, "brightness": brightness})


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        made = super().tools(info)
        frame_at = made[FrameAt.name]
        assert isinstance(frame_at, FrameAt)
        return {**made, FrameAt.name: Decoding(**{own.name: getattr(frame_at, own.name) for own in fields(frame_at)})}
