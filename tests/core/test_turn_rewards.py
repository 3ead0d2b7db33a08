"""Rewards of single turns: what the score leaves out, what the record keeps, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.core.test_group_rewards import SAMPLE, rollout
from tests.paid_turns_method import PaidTurns
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import StopReason, Trajectory

METHOD = PaidTurns(ccv=False)


async def test_turns_are_paid_apart_from_the_rollout() -> None:
    trajectory = rollout(num_turns=3, calls=True)
    reward = await METHOD.score(trajectory, SAMPLE)
    assert reward["look"] == 0.5
    assert reward["score"] == reward["accuracy"] + reward["action_bonus"]
    assert [turn.rewards for turn in trajectory.turns] == [{"look": 0.5}, {"look": 0.0}, {"look": 0.0}]
    assert await METHOD.score(trajectory, SAMPLE) == reward


async def test_the_record_keeps_them() -> None:
    trajectory = rollout(num_turns=2, calls=True)
    before = json.dumps(trajectory.to_dict())
    assert "rewards" not in before  # as in records of all other methods
    await METHOD.score(trajectory, SAMPLE)
    again = Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict())))
    assert again == trajectory


async def test_a_lost_rollout_earns_nothing() -> None:
    trajectory = rollout(calls=True)
    trajectory.stop_reason = StopReason.VIDEO_ERROR
    assert await METHOD.score(trajectory, SAMPLE) == zero_reward(METHOD)
    assert not any(turn.rewards for turn in trajectory.turns)


@pytest.mark.parametrize("value", [0.5, [0.5], [0.0, 0.5, 0.5]])
async def test_a_turn_without_its_number_is_refused(value: Any) -> None:
    class Wrong(PaidTurns):
        async def components(self, *arguments: Any) -> Any:
            return {**await super().components(*arguments), "look": value}

    with pytest.raises(TypeError, match=r"gave look = .* for 2 turns; it is one of turn_components"):
        await Wrong(ccv=False).score(rollout(num_turns=2), SAMPLE)


def test_a_class_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(TypeError, match=r"turn_components has \['novelty'\]"):

        @dataclass(frozen=True, kw_only=True)
        class Unknown(PaidTurns):
            turn_components: ClassVar[tuple[str, ...]] = ("look", "novelty")

    with pytest.raises(TypeError, match=r"\['length'\] in group_components and in turn_components"):

        @dataclass(frozen=True, kw_only=True)
        class Both(PaidTurns):
            turn_components: ClassVar[tuple[str, ...]] = ("length",)
