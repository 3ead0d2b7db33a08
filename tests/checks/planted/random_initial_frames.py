"""Initial frames are drawn at random: no replay shows what was seen."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import FrameThinker

CAUGHT_BY = "initial_frames_are_repeatable"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameThinker):
    name: ClassVar[str] = "planted"

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        planned = super().plan_initial_frames(info, sample, envelope)
        indices = sorted(random.choices(range(info.num_frames), k=len(planned)))
        return vt.FrameRequest(width=planned.width, height=planned.height, indices=tuple(indices))
