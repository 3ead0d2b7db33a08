"""Initial frames from the last to the first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "initial_frames_lie_in_the_video"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        planned = super().plan_initial_frames(info, sample, envelope)
        return replace(planned, indices=tuple(reversed(planned.indices or ())))
