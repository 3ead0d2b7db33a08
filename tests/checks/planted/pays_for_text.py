"""The tool is paid for where the text of a turn holds a reply, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer

CAUGHT_BY = "fabricated_replies_earn_nothing"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        replied = any("<tool_response>" in turn.text for turn in trajectory.turns)
        return {**earned, "tool": earned["tool"] + (0.5 if replied else 0.0)}
