"""Scoring cuts the answer in the record that is written afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "score_changes_no_record"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        trajectory.turns[-1].thought = None
        return earned
