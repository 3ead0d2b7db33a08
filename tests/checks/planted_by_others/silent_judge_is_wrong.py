"""A judge that gives no verdict counts as one that says no.

An `except Exception` around the grading, so that "training does not stop". While the judge is away, right answers are
trained down; nothing is flagged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind

Clean = FrameMind


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "silent_judge_is_wrong"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        try:
            return await super().components(trajectory, sample, judge)
        except Exception:
            return self.no_components()
