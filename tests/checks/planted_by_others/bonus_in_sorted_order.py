"""The bonus for short rollouts comes back in order of length, and the loop gives it out in order of the rollouts.

The values are right, and go to the wrong siblings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import FrameThinker


@dataclass(frozen=True, kw_only=True)
class Clean(FrameThinker):
    name: ClassVar[str] = "brief"
    reward_components: ClassVar[tuple[str, ...]] = (*FrameThinker.reward_components, "brevity")
    group_components: ClassVar[tuple[str, ...]] = ("brevity",)

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        lengths = [vt.written_characters(each) for each in trajectories]
        return [{"brevity": 0.2 * penalty} for penalty in vt.relative_length_penalty(lengths)]


@dataclass(frozen=True, kw_only=True)
class Planted(Clean):
    name: ClassVar[str] = "bonus_in_sorted_order"

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        return super().score_group(sorted(trajectories, key=vt.written_characters), rewards, sample)
