"""What scripted behaviours earn under both choices of a claim, in real episodes and with the method's own reward.

Before any training this tells whether an effect can exist: a policy-gradient step raises the probability of rollouts
with an advantage above 0. Groups are drawn from the shares of the claim's cold start, and advantages are GRPO's: reward
less the group's mean, divided by its standard deviation where its config group does so. Scripted policies read frames
without error, so that a model's own rewards for looking are lower.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.learning_curve.claims.behaviours import Behaviour, Shares, script
from examples.learning_curve.claims.claim import Arm, Claim, Direction, sampling
from examples.learning_curve.held_out import Outcome
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.types import Method, Retriever, Sample
from verl_video_tools.data.export_rollouts import last_segment_iou
from verl_video_tools.data.sft import execute
from verl_video_tools.data.synthetic_rows import make_row
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.oracle import synthetic_fields
from verl_video_tools.synthetic.questions import Kind, Question
from verl_video_tools.synthetic.world import VideoSpec

Clip = tuple[VideoSpec, Question, Path]
GROUP_SIZE = 8
_NUM_GROUPS = 200  # of each question
_NUM_SCRIPTS = 3  # of a behaviour on a question: places and guesses differ
_EPSILON = 1e-6  # of verl's `compute_grpo_outcome_advantage`
_WITHOUT_STD = ("framemind",)  # its config group sets algorithm.norm_adv_by_std_in_grpo=False


@dataclass(frozen=True)
class Earned:
    """Means over rollouts of a behaviour; NaN if none was sampled."""

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
    """The method as config groups set it in the synthetic world, with the claim's fields."""
    own = read_assignments([*claim.common, *(arm.fields if arm else ())])
    return get_method(claim.method, **(synthetic_fields(type(get_method(claim.method))) | own))


@dataclass(frozen=True)
class Played:
    """A scripted rollout: its reward, and what metrics read from it."""

    reward: float
    outcome: Outcome
    iou: float
    tools: frozenset[str]


Tries = Mapping[Behaviour, Sequence[Played]]


def play(
    claim: Claim, arm: Arm, clips: Sequence[Clip], kind: Kind, retriever: Retriever | None = None
) -> list[list[Tries]]:
    """Rollouts of each behaviour of the cold start, for each clip that asks a question of this kind and each rollout of
    a group (FrameMind shows each other first frames).

    Raises:
        ValueError: no clip does.
    """
    asked = [clip for clip in clips if clip[1].kind == kind]
    if not asked:
        raise ValueError(f"no clip asks a question of kind {kind}")
    method = method_of(claim, arm)
    members = [method.for_session(session, GROUP_SIZE, validate=False) for session in range(GROUP_SIZE)]
    behaviours = tuple(shares_of(claim, kind))
    played = []
    for clip in asked:
        tries = {member: _tries(member, behaviours, clip, retriever) for member in dict.fromkeys(members)}
        played.append([tries[member] for member in members])
    return played


def earned(claim: Claim, arm: Arm, clips: Sequence[Clip], kind: Kind, retriever: Retriever | None = None) -> Groups:
    """What groups of the cold start's behaviours earn on questions of a kind.

    Raises:
        ValueError: as `play`.
    """
    rng, shares = np.random.default_rng(0), sampled(shares_of(claim, kind), *sampling(claim.method))
    totals: dict[Behaviour, list[tuple[float, float]]] = {behaviour: [] for behaviour in shares}
    are_live: list[bool] = []
    for members in play(claim, arm, clips, kind, retriever):
        for _ in range(_NUM_GROUPS):
            drawn, rewards_G = draw_group(rng, members, shares)
            are_live.append(len(set(rewards_G)) > 1)
            for behaviour, *pair in zip(drawn, rewards_G, advantages_of(rewards_G, claim.method), strict=True):
                totals[behaviour].append((pair[0], pair[1]))
    means = {each: np.mean(pairs, axis=0) if pairs else (math.nan, math.nan) for each, pairs in totals.items()}
    return Groups({each: Earned(*map(float, mean)) for each, mean in means.items()}, float(np.mean(are_live)))


def sampled(shares: Shares, temperature: float, top_p: float) -> Shares:
    """How often a policy that gives behaviours these probabilities shows them.

    Behaviours differ in the first token of a thought, so that a temperature raises the likely ones, and those that
    together reach `top_p` leave no room for the others.
    """
    raised = {each: share ** (1.0 / temperature) for each, share in shares.items()}
    nucleus: dict[Behaviour, float] = {}
    for each in sorted(raised, key=lambda each: raised[each], reverse=True):
        if sum(nucleus.values()) < top_p * sum(raised.values()):
            nucleus[each] = raised[each]
    return {each: nucleus.get(each, 0.0) / sum(nucleus.values()) for each in shares}


def draw_group(
    rng: np.random.Generator, members: Sequence[Tries], shares: Shares
) -> tuple[list[Behaviour], np.ndarray]:
    """Behaviours of a group's rollouts, and their rewards."""
    behaviours = list(shares)
    numbers = rng.choice(len(behaviours), size=len(members), p=list(shares.values()))
    drawn = [behaviours[number] for number in numbers]
    tries = [member[behaviour] for member, behaviour in zip(members, drawn, strict=True)]
    return drawn, np.array([each[int(rng.integers(len(each)))].reward for each in tries])


def advantages_of(rewards_G: np.ndarray, method: str) -> np.ndarray:
    """GRPO's advantages of a group."""
    centred_G: np.ndarray = rewards_G - rewards_G.mean()
    return centred_G if method in _WITHOUT_STD else centred_G / (rewards_G.std(ddof=1) + _EPSILON)


def shares_of(claim: Claim, kind: Kind) -> Shares:
    """Of the cold start, whose `look` is `locate` where the initial frames differ within a group."""
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


def _tries(method: Method, behaviours: Sequence[Behaviour], clip: Clip, retriever: Retriever | None) -> Tries:
    spec, question, path = clip
    row = make_row(spec, question, path, 0, "test", method.name)
    sample = Sample.from_row(row)

    async def run(behaviour: Behaviour, seed: int) -> Played:
        turns = script(behaviour, method, spec, question, seed).turns
        trajectory = await execute(method, sample, turns, retriever)
        reward = await method.score(trajectory, sample, None)
        outcome = Outcome(
            score=reward["score"],
            accuracy=float(reward["accuracy"] > 0.0),
            executed_calls=len(trajectory.executed_calls()),
            seconds_per_look=None,
            row=row["extra_info"],
        )
        iou = last_segment_iou(trajectory, row["extra_info"]["video_segment"])
        tools = frozenset(call.name for call in trajectory.executed_calls())
        return Played(reward["score"], outcome, iou, tools)

    return {each: [asyncio.run(run(each, seed)) for seed in range(_NUM_SCRIPTS)] for each in behaviours}
