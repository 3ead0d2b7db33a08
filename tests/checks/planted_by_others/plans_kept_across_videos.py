"""A tool keeps the plan of each call, by the call's arguments alone.

The same span of the next video gives the frame numbers and times of the first one: in a worker that runs for hours,
nearly every call is answered from another video's plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.longvt.crop_video import CropVideo

Clean = LongVT

_PLANS: dict[str, vt.ToolPlan] = {}


@dataclass(frozen=True, kw_only=True)
class KeepingCropVideo(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        key = json.dumps(dict(arguments), sort_keys=True, default=str)
        if key not in _PLANS:
            _PLANS[key] = await super().plan(arguments, context)
        return _PLANS[key]


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "plans_kept_across_videos"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        crop_video = KeepingCropVideo(
            fps=self.fps, max_frames=self.call_frames, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
        return {crop_video.name: crop_video}
