"""A rollout without an answer lacks a component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import FrameThinker

CAUGHT_BY = "reward_has_all_keys"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameThinker):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        if trajectory.answer is None:
            del earned["format"]
        return earned
