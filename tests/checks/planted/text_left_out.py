"""A tool tells something beside its frames, and `observe` shows the frames alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer
from verl_video_tools.methods.videozoomer.video_zoom import VideoZoom

CAUGHT_BY = "observations_tell_the_text_of_the_call"


@dataclass(frozen=True, kw_only=True)
class Telling(VideoZoom):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Raises CallRejected: `malformed_call`, `reversed_segment`, `out_of_range`, `segment_too_short` or
        `too_many_frames`."""
        plan = await super().plan(arguments, context)
        return replace(plan, text="Shots begin in this segment.")


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {Telling.name: Telling(max_frames=self.call_frames, max_pixels=self.max_pixels)}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        wordless = [replace(each, record=replace(each.record, text=None)) for each in outcomes]
        return super().observe(wordless, turns_left)
