"""The mean over no calls is no number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videobrain import VideoBrain

CAUGHT_BY = "reward_is_finite"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoBrain):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        calls = trajectory.executed_calls()
        share = sum(bool(call.frames) for call in calls) / len(calls) if calls else float("nan")
        return {**earned, "behavior": earned["behavior"] * share}
