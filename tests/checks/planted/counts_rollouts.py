"""A counter beside the fields: every process counts for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "nothing_is_kept_beside_the_fields"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        object.__setattr__(self, "rollouts", getattr(self, "rollouts", 0) + 1)
        return super().plan_initial_frames(info, sample, envelope)
