"""A number without a range: -1 is taken, and every rollout fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "config_values_are_checked"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    shown: int = 4

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        planned = super().plan_initial_frames(info, sample, envelope)
        if self.shown < 0:
            raise ValueError(f"cannot show {self.shown} frames")
        return planned
