"""A slow disk costs reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind

CAUGHT_BY = "reward_ignores_the_machine"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        return {**earned, "tool": earned["tool"] - 1e-3 * sum(call.latency_ms > 1000 for call in trajectory.calls())}
