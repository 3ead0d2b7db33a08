"""Credit among rollouts that share their first turns, by enumeration, and turns that are sampled once."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from verl_video_tools.core.errors import InvariantError, UsageError
from verl_video_tools.rollout.branching import Branching, SharedPrefix, branch_advantages

TWO = Branching(branches=2)
GROUP_SIZE = 4

# ------------------------------------------------------------------------------------------------- a policy of 14 paths

FIRST = 3
"""First actions; the last one ends the rollout."""
SECOND = 2
REWARDS = {(0, 0): 1.0, (0, 1): 0.2, (1, 0): -0.5, (1, 1): 0.9, (2, None): 0.4}
LOGITS = np.array([0.3, -0.6, 0.1, 0.8, -0.2, -0.4, 0.5])
"""Of the first action, then of the second one after the first and after the second action."""


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max())
    return np.asarray(shares / shares.sum())


def score(begin: int, size: int, action: int) -> np.ndarray:
    """Gradient of an action's log-probability by all logits."""
    gradient = np.zeros_like(LOGITS)
    gradient[begin : begin + size] = -softmax(LOGITS[begin : begin + size])
    gradient[begin + action] += 1
    return gradient


def continuations(first: int) -> Iterator[tuple[int | None, float]]:
    """Second actions with their probabilities."""
    if first == FIRST - 1:
        yield None, 1.0
        return
    begin = FIRST + SECOND * first
    yield from enumerate(map(float, softmax(LOGITS[begin : begin + SECOND])))


def expected_reward() -> float:
    shares = softmax(LOGITS[:FIRST])
    return sum(
        float(shares[first]) * share * REWARDS[first, second]
        for first in range(FIRST)
        for second, share in continuations(first)
    )


def true_gradient() -> np.ndarray:
    """By finite differences, so that nothing of the estimator is in it."""
    found = []
    for i in range(len(LOGITS)):
        values = []
        for change in (1e-5, -1e-5):
            LOGITS[i] += change
            values.append(expected_reward())
            LOGITS[i] -= change
        found.append((values[0] - values[1]) / 2e-5)
    return np.array(found)


Credit = Callable[[Mapping[int, float], Branching], Mapping[int, tuple[float, float]]]


def by_branches(rewards: Mapping[int, float], branching: Branching) -> Mapping[int, tuple[float, float]]:
    return branch_advantages(rewards, branching, divides_by_std=False)


def by_branches_and_deviation(rewards: Mapping[int, float], branching: Branching) -> Mapping[int, tuple[float, float]]:
    return branch_advantages(rewards, branching, divides_by_std=True)


def expected_advantages(rewards: Sequence[float], divides_by_std: bool) -> list[float]:
    """GRPO's."""
    values = np.array(rewards) - np.mean(rewards)
    return list(values / (np.std(rewards, ddof=1) + 1e-6) if divides_by_std else values)


def by_groups(rewards: Mapping[int, float], _: Branching) -> Mapping[int, tuple[float, float]]:
    """GRPO's, which does not know that rollouts share turns."""
    values = expected_advantages([*rewards.values()], divides_by_std=False)
    return {number: (value, value) for number, value in zip(rewards, values, strict=True)}


def mean_estimate(
    credit: Credit,
    branches: int,
    counting: Sequence[int] = range(GROUP_SIZE),
    weights: Mapping[tuple[int, int | None], float] | None = None,
) -> np.ndarray:
    """Of the gradient, over all groups that can come out, each as often as it does.

    Args:
        counting: numbers of the rollouts that are not lost.
        weights: of the tokens of a rollout, as in a loss that is a mean over each; by its actions.
    """
    branching = Branching(branches=branches)
    shares = softmax(LOGITS[:FIRST])
    of_prefix = [
        (first, ends, float(shares[first]) * math.prod(share for _, share in ends))
        for first in range(FIRST)
        for ends in itertools.product(continuations(first), repeat=branches if first != FIRST - 1 else 1)
    ]
    mean = np.zeros_like(LOGITS)
    for group in itertools.product(of_prefix, repeat=GROUP_SIZE // branches):
        rollouts = [(first, end) for first, ends, _ in group for end, _ in (ends * branches)[:branches]]
        rewards = {number: REWARDS[rollouts[number]] for number in counting}
        estimate = np.zeros_like(LOGITS)
        for number, (in_prefix, after) in credit(rewards, branching).items():
            first, second = rollouts[number]
            own = in_prefix * score(0, FIRST, first)
            if second is not None:
                own += after * score(FIRST + SECOND * first, SECOND, second)
            estimate += own if weights is None else own * weights[first, second]
        mean += math.prod(share for _, _, share in group) * estimate / len(counting)
    return mean


def bias(credit: Credit, branches: int, counting: Sequence[int] = range(GROUP_SIZE)) -> float:
    """Largest difference from the true gradient, of which GRPO's mean, which holds the rollout itself, leaves
    (n - 1) / n."""
    left = (len(counting) - 1) / len(counting)
    return float(np.abs(mean_estimate(credit, branches, counting) - left * true_gradient()).max())


@pytest.mark.parametrize("counting", [(0, 1, 2, 3), (0, 1, 2), (0, 2)], ids=str)
@pytest.mark.parametrize("branches", [1, 2])
def test_in_expectation_the_gradient_is_that_of_grpo(branches: int, counting: tuple[int, ...]) -> None:
    assert bias(by_branches, branches, counting) < 1e-8


def test_grpos_own_advantages_are_biased_where_turns_are_shared() -> None:
    """So the test above can fail: shared turns would weigh less than those after them."""
    assert bias(by_groups, branches=1) < 1e-8
    assert bias(by_groups, branches=2) > 0.01


def test_with_one_prefix_left_only_branches_are_compared() -> None:
    assert bias(by_branches, 2, counting=(0, 1)) > 0.01
    found = mean_estimate(by_branches, 2, counting=(0, 1))
    assert np.abs(found[:FIRST]).max() == 0.0 < np.abs(found[FIRST:]).min()


LENGTHS = {(0, 0): 5, (0, 1): 9, (1, 0): 7, (1, 1): 6, (2, None): 3}
"""Of rollouts, in tokens."""


@pytest.mark.parametrize("credit", [by_branches, by_branches_and_deviation])
@pytest.mark.parametrize("weights", [None, {actions: 1 / length for actions, length in LENGTHS.items()}])
def test_with_deviations_and_lengths_the_gradient_is_near_that_of_grpo(
    credit: Credit, weights: Mapping[tuple[int, int | None], float] | None
) -> None:
    """GRPO's own is then no gradient of the mean reward either."""
    plain, shared = (mean_estimate(credit, branches, weights=weights) for branches in (1, 2))
    sizes = [float(np.linalg.norm(each)) for each in (plain, shared)]
    difference = float(np.linalg.norm(shared - plain)) / sizes[0]
    assert difference < 0.15 and plain @ shared / math.prod(sizes) > 0.99
    assert (difference < 1e-8) == (weights is None and credit is by_branches)


# ----------------------------------------------------------------------------------------------------------- advantages


@pytest.mark.parametrize("divides_by_std", [True, False])
def test_without_branches_it_is_grpo(divides_by_std: bool) -> None:
    rewards = [0.3, 1.0, 0.0, 1.2]
    found = branch_advantages(dict(enumerate(rewards)), Branching(), divides_by_std)
    expected = expected_advantages(rewards, divides_by_std)
    assert [in_prefix for in_prefix, _ in found.values()] == pytest.approx(expected)
    assert [after for _, after in found.values()] == pytest.approx(expected)


def test_a_prefix_is_compared_with_prefixes_and_a_branch_with_branches() -> None:
    found = branch_advantages({0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0}, TWO, divides_by_std=False)
    assert found == {0: (0.375, 0.75), 1: (0.375, -0.75), 2: (-0.375, 0.0), 3: (-0.375, 0.0)}
    found = branch_advantages({0: 1.0, 1: 0.0, 2: 0.5, 3: 0.5}, TWO, divides_by_std=True)
    assert [in_prefix for in_prefix, _ in found.values()] == [0.0] * 4  # both are worth 0.5
    assert found[0][1] == -found[1][1] > 0 == found[2][1] == found[3][1]


def test_who_has_lost_its_siblings_is_compared_with_prefixes_throughout() -> None:
    found = branch_advantages({0: 1.0, 2: 0.0, 3: 0.0}, TWO, divides_by_std=False)
    assert found[0][0] == found[0][1] > 0 > found[2][0]
    assert branch_advantages({0: 1.0}, TWO, divides_by_std=False) == {0: (0.0, 0.0)}
    assert branch_advantages({0: 1.0, 1: 0.0}, TWO, divides_by_std=False)[0] == (0.0, 0.5)


def test_groups_that_cannot_be_divided_are_refused() -> None:
    assert TWO.num_prefixes(8) == 4 and [TWO.prefix(number) for number in range(4)] == [0, 0, 1, 1]
    for branches in (3, 8, 16):
        with pytest.raises(UsageError, match=rf"branches={branches} .* rollout.n=8"):
            Branching(branches=branches).num_prefixes(8)
    with pytest.raises(UsageError, match="turn must be at least 2, got 1"):
        Branching(branches=2, turn=1)


# --------------------------------------------------------------------------------------------------------- shared turns


async def test_a_turn_is_sampled_once() -> None:
    prefix, asked = SharedPrefix(), []

    async def generate() -> str:
        asked.append(1)
        await asyncio.sleep(0)
        return "turn"

    found = await asyncio.gather(*(prefix.sample(0, [1, 2], generate) for _ in range(3)))
    assert found == [("turn", False), ("turn", True), ("turn", True)] and len(asked) == 1
    assert await prefix.sample(1, [1, 2, 3], generate) == ("turn", False)
    assert await prefix.sample(1, [1, 2, 3], generate) == ("turn", True)


async def test_a_sibling_that_has_seen_something_else_is_told() -> None:
    async def generate() -> str:
        return "turn"

    prefix = SharedPrefix()
    await prefix.sample(0, [1, 2], generate)
    with pytest.raises(InvariantError, match=r"turn 1 is shared .* branching.turn lower"):
        await prefix.sample(0, [1, 3], generate)


async def test_whoever_is_cancelled_leaves_its_siblings_their_turn() -> None:
    prefix, release = SharedPrefix(), asyncio.Event()

    async def generate() -> str:
        await release.wait()
        return "turn"

    first, second = (asyncio.create_task(prefix.sample(0, [1], generate)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    release.set()
    assert await second == ("turn", True)
    assert first.cancelled()


async def test_an_engine_that_fails_fails_for_all_who_share_the_turn() -> None:
    async def generate() -> Any:
        raise RuntimeError("engine")

    prefix = SharedPrefix()
    found = await asyncio.gather(*(prefix.sample(0, [1], generate) for _ in range(2)), return_exceptions=True)
    assert [str(error) for error in found] == ["engine", "engine"]
