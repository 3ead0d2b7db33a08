"""A method whose rollouts are compared with their siblings, and what makes it known to `get_method`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from verl_video_tools.core.types import Sample, Trajectory
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import FrameThinker

NAME = "framethinker_group"


def relative_length_penalty(lengths: Sequence[float]) -> list[float]:
    """0 for the shortest rollout, -1 for the longest, linear between; 0 for all where they are equal."""
    shortest, longest = min(lengths), max(lengths)
    return [-(length - shortest) / (longest - shortest) if longest > shortest else 0.0 for length in lengths]


@dataclass(frozen=True, kw_only=True)
class FrameThinkerInGroups(FrameThinker):
    """FrameThinker; beside it a bonus for calls that are rare in the group, and one for a short rollout."""

    name: ClassVar[str] = NAME
    reward_components: ClassVar[tuple[str, ...]] = (*FrameThinker.reward_components, "curiosity", "length")
    group_components: ClassVar[tuple[str, ...]] = ("curiosity", "length")

    wanted_rate: float = 0.6
    length_weight: float = 0.25
    context: Literal["append", "last_evidence", "initial_plus_last"] = "append"
    prompt_variants: int = 1
    """Different system prompts in a group, in turn."""
    prompt_variant: int = 0
    frames_per_rollout: tuple[int, ...] = ()
    """Initial frames of the rollouts of a group, in turn; none: the run's."""

    def context_policy(self) -> vt.ContextPolicy:
        return getattr(vt, self.context)

    def for_session(self, session_id: int, group_size: int, validate: bool) -> FrameThinkerInGroups:
        if validate:
            return self
        own = replace(self, prompt_variant=session_id % self.prompt_variants)
        if not self.frames_per_rollout:
            return own
        return replace(own, initial_frames=self.frames_per_rollout[session_id % len(self.frames_per_rollout)])

    def prompt(self, sample: Sample, info: Any, images: Any) -> list[vt.Message]:
        system, *others = super().prompt(sample, info, images)
        hint = "\nLook twice before you answer." if self.prompt_variant else ""
        return [vt.Message(system.role, (*system.content, hint)), *others]

    def score_group(
        self, trajectories: Sequence[Trajectory], rewards: Sequence[Mapping[str, float]], sample: Sample
    ) -> list[dict[str, float]]:
        curiosity = vt.curiosity_bonus([vt.uses_tools(each) for each in trajectories], self.wanted_rate)
        length = relative_length_penalty([len(each.turns) for each in trajectories])
        return [
            {"curiosity": bonus, "length": self.length_weight * penalty}
            for bonus, penalty in zip(curiosity, length, strict=True)
        ]


PATH = f"{__name__}:FrameThinkerInGroups"
