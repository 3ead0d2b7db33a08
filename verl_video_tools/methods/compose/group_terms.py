"""Reward terms that compare the rollouts of a group. A new one is one entry of `terms.TERMS`.

They are worked out once all rollouts of a question are scored (`Method.score_group`): a term of a single rollout may
gate one of these, and not the other way round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.terms import AnyTerm, unknown_tools


@dataclass(frozen=True)
class ScoredGroup:
    """The rollouts of one question, and what each earned by itself: `score`, `acc` and all components."""

    trajectories: Sequence[vt.Trajectory]
    rewards: Sequence[Mapping[str, float]]

    def used(self, tools: Sequence[str]) -> list[bool]:
        """Whether each rollout carried out a call of one of these tools, or of any where none is named."""
        return [
            any(not tools or call.name in tools for call in trajectory.executed_calls())
            for trajectory in self.trajectories
        ]


@dataclass(frozen=True, kw_only=True)
class GroupTerm(AnyTerm):
    """A part of the reward that a rollout earns beside its siblings, before its weight and gates."""

    @abstractmethod
    def values(self, group: ScoredGroup) -> list[float]:
        """What each rollout earns, in their order; two rollouts or more."""


@dataclass(frozen=True, kw_only=True)
class Curiosity(GroupTerm):
    """To rollouts that used a tool, how far the group is from using tools as often as wanted; after Pixel Reasoner.

    Attributes:
        wanted_rate: of rollouts that use a tool, 0 to 1; from there on nobody earns anything.
        tools: names of those that count; empty: all.
    """

    wanted_rate: float = 0.3
    tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        vt.require(self, "wanted_rate", 0.0 <= self.wanted_rate <= 1.0, "0 to 1")

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.curiosity_bonus(group.used(self.tools), self.wanted_rate)

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        return unknown_tools(self.tools, tools)


@dataclass(frozen=True, kw_only=True)
class Diversity(GroupTerm):
    """How far a rollout looked elsewhere in time than its siblings: 1 less the mean IoU with those that looked.

    Attributes:
        margin_seconds: added at both ends of what a call showed, so that a call of one frame covers something.
    """

    margin_seconds: float = 0.5

    def __post_init__(self) -> None:
        vt.require(self, "margin_seconds", self.margin_seconds >= 0.0, "at least 0")

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.span_diversity([vt.looked_at_spans(each, self.margin_seconds) for each in group.trajectories])


@dataclass(frozen=True, kw_only=True)
class RelativeLength(GroupTerm):
    """0 for the shortest rollout of the group, -1 for the longest, linear between; after Kimi k1.5.

    Attributes:
        of: what is counted: `characters` that the policy wrote, its `turns`, or executed `calls`.
    """

    of: Literal["characters", "turns", "calls"] = "characters"

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.relative_length_penalty([self._length(each) for each in group.trajectories])

    def _length(self, trajectory: vt.Trajectory) -> int:
        match self.of:
            case "turns":
                return len(trajectory.turns)
            case "calls":
                return len(trajectory.executed_calls())
        return vt.written_characters(trajectory)


@dataclass(frozen=True, kw_only=True)
class ToolNecessity(GroupTerm):
    """To a right rollout with tools, the share of its siblings without tools that were wrong.

    Attributes:
        tools: names of those that count; empty: all.
        right_from: `acc` of a rollout from which it is right.
    """

    tools: tuple[str, ...] = ()
    right_from: float = 1.0

    def __post_init__(self) -> None:
        vt.require(self, "right_from", 0.0 < self.right_from <= 1.0, "above 0 and at most 1")

    def values(self, group: ScoredGroup) -> list[float]:
        right = [reward["acc"] >= self.right_from for reward in group.rewards]
        return vt.tool_necessity(group.used(self.tools), right)

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        return unknown_tools(self.tools, tools)
