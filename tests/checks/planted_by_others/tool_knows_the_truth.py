"""A tool shows frames only where the crop meets the segment that the row annotates as evidence.

It was meant as a help in early training. The policy learns where the evidence is from refusals, and reads them as the
answer; without annotations, as in every evaluation, the tool behaves otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.longvt.crop_video import CropVideo

Clean = LongVT


@dataclass(frozen=True, kw_only=True)
class KnowingCropVideo(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        truth = context.sample.video_segment_seconds
        if truth is not None and (plan.result["end_time"] < truth[0] or plan.result["start_time"] > truth[1]):
            raise vt.CallRejected(vt.CallErrorCode.NOTHING_FOUND, "nothing of interest happens there")
        return plan


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "tool_knows_the_truth"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        crop_video = KnowingCropVideo(
            fps=self.fps, max_frames=self.call_frames, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
        return {crop_video.name: crop_video}
