"""The tool is paid for where a call was written, carried out or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "unexecuted_calls_earn_nothing"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        return {**earned, "temporal_iou": 1.0 if trajectory.calls() else 0.0}
