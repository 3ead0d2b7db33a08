"""Rollouts of a question that share their first turns: credit for what comes after is given among them alone.

A group of `rollout.n` rollouts becomes `n / branches` prefixes with `branches` continuations each. A prefix is sampled
once; its rollouts go on by themselves from a turn on. A prefix is compared with the other prefixes by the mean reward
of its branches, and a continuation with the other branches of its prefix, which have seen the same: what the first
turns were worth does not blur what the last ones were. Where tokens weigh the same and rewards are not divided by the
group's deviation, the gradient is in expectation that of GRPO (arXiv 2402.03300, 4.1.2); else it is near that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import InvariantError, UsageError

_EPSILON = 1e-6
"""verl's, beside the deviation of a group."""


@dataclass(frozen=True)
class Branching:
    """Which turns the rollouts of a group share; section `branching` of `rollout.custom.video_tools`.

    Attributes:
        branches: rollouts with one prefix, numbered one after the other; 1: none share anything.
        turn: the first turn, counted from 1, that each of them samples for itself.
    """

    branches: int = 1
    turn: int = 2

    def __post_init__(self) -> None:
        require(self, "branches", self.branches >= 1, "at least 1")
        require(self, "turn", self.turn >= 2, "at least 2")

    def prefix(self, session_id: int) -> int:
        """Number of a rollout's prefix in its group."""
        return session_id // self.branches

    def num_prefixes(self, group_size: int) -> int:
        """Raises UsageError where a group has no whole number of prefixes, or a single one, which nothing compares."""
        if self.branches > 1 and (group_size % self.branches or group_size == self.branches):
            raise UsageError(
                f"branching.branches={self.branches} makes no two or more equal parts of rollout.n={group_size}; give "
                "a divisor that is smaller"
            )
        return group_size // self.branches


class SharedPrefix:
    """The turns that some rollouts of a group share: the rollout that comes to a turn first has it sampled."""

    def __init__(self) -> None:
        self._turns: list[tuple[list[int], asyncio.Task[Any]]] = []

    async def sample(
        self, number: int, prompt_ids: Sequence[int], generate: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, bool]:
        """A turn, and whether it was sampled for a sibling.

        Args:
            number: of the turn, from 0; rollouts ask for them in order.
            prompt_ids: all tokens before it.
            generate: has it sampled. It goes on if this rollout is cancelled, since siblings may wait for it.

        Raises:
            InvariantError: the rollout has seen other tokens than its siblings, so that their turn is not one of its
                own; also whatever `generate` raises, in each of them.
        """
        is_reused = number < len(self._turns)
        if not is_reused:
            self._turns.append((list(prompt_ids), asyncio.ensure_future(generate())))
        seen, task = self._turns[number]
        if seen != list(prompt_ids):
            raise InvariantError(
                f"turn {number + 1} is shared with siblings, and the tokens before it are not theirs: a tool or a "
                "first look came out otherwise; set branching.turn lower, or branching.branches=1"
            )
        return await asyncio.shield(task), is_reused


def branch_advantages(
    rewards: Mapping[int, float], branching: Branching, divides_by_std: bool
) -> dict[int, tuple[float, float]]:
    """Advantages of the prefix's tokens and of those after it, by the number of the rollout in its group.

    Every baseline is a mean over others, so that it is independent of what it is taken from. A prefix with a single
    rollout that counts has one advantage throughout, and where all have, these are GRPO's. Where all rollouts that
    count have one prefix, there is no other to compare it with, and its tokens have advantage 0.

    Args:
        rewards: of the rollouts that count, in one group.
        divides_by_std: as GRPO does; Dr. GRPO (arXiv 2503.20783) does not.
    """
    values = np.array(list(rewards.values()), dtype=np.float64)
    if len(values) < 2:
        return dict.fromkeys(rewards, (0.0, 0.0))
    # GRPO's mean is over all, with the rollout itself: what is left of a difference from the others is (n - 1) / n.
    scale = (1 - 1 / len(values)) / (values.std(ddof=1) + _EPSILON if divides_by_std else 1.0)
    of_prefix: dict[int, list[float]] = {}
    for number, reward in rewards.items():
        of_prefix.setdefault(branching.prefix(number), []).append(reward)
    means = {prefix: float(np.mean(own)) for prefix, own in of_prefix.items()}
    found = {}
    for number, reward in rewards.items():
        prefix = branching.prefix(number)
        others = [mean for other, mean in means.items() if other != prefix]
        first = scale * (means[prefix] - float(np.mean(others))) if others else 0.0
        num_branches = len(of_prefix[prefix])
        after = scale * (reward - means[prefix]) * num_branches / (num_branches - 1) if num_branches > 1 else first
        found[number] = (first, after)
    return found
