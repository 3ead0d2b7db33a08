"""What scripted behaviours earn under both choices of a claim, in real episodes and with the method's own reward.

Before any training this tells whether an effect can exist: a policy-gradient step raises the probability of rollouts
with an advantage above 0. Groups are drawn from the shares of the claim's cold start, and advantages are GRPO's: reward
less the group's mean, divided by its standard deviation where the recipe does so. Scripted policies read frames without
error, so that a model's own rewards for looking are lower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.learning_curve.claims.behaviours import Behaviour, Shares, script
from examples.learning_curve.claims.claim import Arm, Claim, Direction
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.types import Method, Retriever, Sample
from verl_video_tools.data.sft import execute
from verl_video_tools.data.synthetic_rows import make_row
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.synthetic import synthetic_fields
from verl_video_tools.synthetic.questions import Kind, Question
from verl_video_tools.synthetic.world import VideoSpec

Clip = tuple[VideoSpec, Question, Path]
GROUP_SIZE = 8
_NUM_GROUPS = 200  # of each question
_NUM_SCRIPTS = 3  # of a behaviour on a question: places and guesses differ
_EPSILON = 1e-6  # of verl's `compute_grpo_outcome_advantage`
_WITHOUT_STD = ("framemind",)  # its recipe sets algorithm.norm_adv_by_std_in_grpo=False


@dataclass(frozen=True)
class Earned:
    """Means over rollouts of a behaviour."""

    reward: float
    advantage: float


@dataclass(frozen=True)
class Groups:
    """What groups of a kind of question earn.

    Attributes:
        behaviours: of the cold start.
        live_share: of the groups, those with unequal rewards; the others teach nothing, and dynamic sampling replaces
            them.
    """

    behaviours: Mapping[Behaviour, Earned]
    live_share: float


def method_of(claim: Claim, arm: Arm | None = None) -> Method:
    """The method as recipes set it in the synthetic world, with the claim's fields."""
    own = read_assignments([*claim.common, *(arm.fields if arm else ())])
    return get_method(claim.method, **(synthetic_fields(type(get_method(claim.method))) | own))


def earned(claim: Claim, arm: Arm, clips: Sequence[Clip], kind: Kind, retriever: Retriever | None = None) -> Groups:
    """What groups earn on the clips that ask a question of this kind.

    Raises:
        ValueError: no clip does.
    """
    asked = [clip for clip in clips if clip[1].kind == kind]
    if not asked:
        raise ValueError(f"no clip asks a question of kind {kind}")
    method, shares = method_of(claim, arm), shares_of(claim, kind)
    rng = np.random.default_rng(0)
    totals: dict[Behaviour, list[tuple[float, float]]] = {behaviour: [] for behaviour in shares}
    are_live: list[bool] = []
    for clip in asked:
        # FrameMind shows each rollout of a group other first frames; the others' methods are the same for all.
        members = [method.for_session(session, GROUP_SIZE, validate=False) for session in range(GROUP_SIZE)]
        rewards = {member: _rewards(member, shares, clip, retriever) for member in dict.fromkeys(members)}
        for _ in range(_NUM_GROUPS):
            drawn: list[Behaviour] = [_draw(rng, shares) for _ in members]
            group = np.array([rng.choice(rewards[member][each]) for member, each in zip(members, drawn, strict=True)])
            are_live.append(len(set(group)) > 1)
            for behaviour, reward, advantage in zip(drawn, group, _advantages(group, claim.method), strict=True):
                totals[behaviour].append((reward, advantage))
    means = {behaviour: np.mean(pairs, axis=0) for behaviour, pairs in totals.items()}
    return Groups({each: Earned(*map(float, mean)) for each, mean in means.items()}, float(np.mean(are_live)))


def shares_of(claim: Claim, kind: Kind) -> Shares:
    """Of the cold start, whose `look` is `locate` where the first look differs within a group."""
    locates = claim.direction is not None and "locate" in claim.direction.better
    named: Mapping[Behaviour, Behaviour] = {"look": "locate"} if locates else {}
    return {named.get(behaviour, behaviour): share for behaviour, share in claim.cold[kind].items()}


def lead(claim: Claim, direction: Direction, groups: Groups) -> float:
    """How far the mean advantage of a direction's better behaviours lies above that of its worse ones."""
    shares = shares_of(claim, direction.kind)

    def mean(names: Sequence[Behaviour]) -> float:
        total = sum(shares[name] * groups.behaviours[name].advantage for name in names)
        return total / sum(shares[name] for name in names)

    return mean(direction.better) - mean(direction.worse)


def _rewards(
    method: Method, behaviours: Shares, clip: Clip, retriever: Retriever | None
) -> dict[Behaviour, list[float]]:
    spec, question, path = clip
    sample = Sample.from_row(make_row(spec, question, path, 0, "test", method.name))

    async def reward(behaviour: Behaviour, seed: int) -> float:
        turns = script(behaviour, method, spec, question, seed).turns
        trajectory = await execute(method, sample, turns, retriever)
        return (await method.score(trajectory, sample, None))["score"]

    return {each: [asyncio.run(reward(each, seed)) for seed in range(_NUM_SCRIPTS)] for each in behaviours}


def _draw(rng: np.random.Generator, shares: Shares) -> Behaviour:
    behaviours = list(shares)
    return behaviours[rng.choice(len(behaviours), p=list(shares.values()))]


def _advantages(rewards_G: np.ndarray, method: str) -> np.ndarray:
    centred_G: np.ndarray = rewards_G - rewards_G.mean()
    return centred_G if method in _WITHOUT_STD else centred_G / (rewards_G.std(ddof=1) + _EPSILON)
