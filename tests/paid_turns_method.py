"""A method that pays single turns, beside what it compares in a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.group_method import FrameThinkerInGroups


@dataclass(frozen=True, kw_only=True)
class PaidTurns(FrameThinkerInGroups):
    """Each turn with an executed call earns `look_reward`."""

    reward_components: ClassVar[tuple[str, ...]] = (*FrameThinkerInGroups.reward_components, "look")
    turn_components: ClassVar[tuple[str, ...]] = ("look",)

    look_reward: float = 0.5

    async def components(self, trajectory: Any, *others: Any) -> Mapping[str, float | Sequence[float]]:
        look = [self.look_reward * any(call.ok for call in turn.calls) for turn in trajectory.turns]
        return {**await super().components(trajectory, *others), "look": look}


PATH = f"{__name__}:PaidTurns"
