"""What a policy that chooses among scripted behaviours would learn in the steps of a claim.

A softmax policy over the behaviours of the cold start, for each kind of question, follows GRPO's gradient on rewards of
real episodes. All behaviours but `skip` share one more parameter: a small model that learns to call for one kind of
question calls more for another. It is sampled as in training: what is outside the nucleus is never
learned. Scripted policies read frames without error and learn nothing but which behaviour to
choose, so this forecasts whether an effect has time to show, not accuracies. A step is scaled to the rollouts of groups
with unequal rewards, as Adam scales it, roughly: else what dynamic sampling gains would be overrated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from examples.learning_curve.claims.advantages import (
    Clip,
    Tries,
    advantages_of,
    draw_group,
    play,
    sampled,
    shares_of,
)
from examples.learning_curve.claims.behaviours import Behaviour, Shares
from examples.learning_curve.claims.claim import Arm, Claim, Metric, sampling
from verl_video_tools.core.types import Retriever
from verl_video_tools.synthetic.questions import Kind

RATE = 0.8
"""Of the logits, per unit of mean advantage. With half of it a cold start of which 55 of 100 rollouts do not look
and 35 look rightly goes from 44 to 67 % in 12 steps. Real policies are faster: FrameThinker's seed 11 was
right in 44 % of the rollouts of its first two steps, and in 90 % of greedy ones after 5."""
_MOST_DRAWS = 10  # groups drawn for one that is kept
_REPETITIONS = 8


def forecast(
    claim: Claim, clips: Sequence[Clip], retriever: Retriever | None = None, rates: Sequence[float] = (RATE,)
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The claim's first metric under the paper's choice and under the other one after its steps, for each rate; of so
    many seeds each.

    Raises:
        ValueError: a kind of question is asked about no clip.
    """
    played = {
        arm: {kind: play(claim, arm, clips, kind, retriever) for kind in claim.cold}
        for arm in (claim.paper, claim.other)
    }

    def measured(arm: Arm, rate: float) -> np.ndarray:
        ends = [_learn(claim, arm, played[arm], np.random.default_rng(seed), rate) for seed in range(_REPETITIONS)]
        if not claim.samples_answers:
            ends = [{kind: _likeliest(shares) for kind, shares in end.items()} for end in ends]
        # Both are measured on the first frames of validation, which the paper's choice shows to the first rollout.
        return np.array([_mean(claim.metrics[0], end, played[claim.paper]) for end in ends])

    return [(measured(claim.paper, rate), measured(claim.other, rate)) for rate in rates]


def _learn(
    claim: Claim, arm: Arm, played: Mapping[Kind, Sequence[Sequence[Tries]]], rng: np.random.Generator, rate: float
) -> dict[Kind, Shares]:
    """How often each behaviour is sampled after the last step."""
    logits = {kind: {each: np.log(share) for each, share in shares_of(claim, kind).items()} for kind in claim.cold}
    calling = 0.0
    weights = np.array([claim.train_shares.get(kind, 1.0) for kind in claim.cold])

    def policy() -> dict[Kind, Shares]:
        return {kind: sampled(_softmax(logits[kind], calling), *sampling(claim.method)) for kind in logits}

    for _ in range(claim.plan.rl_steps):
        groups = _batch(claim, arm, played, policy(), weights, rng)
        scale = rate / max(1, sum(len(drawn) for _, drawn, advantages_G, _ in groups if advantages_G.any()))
        for kind, drawn, advantages_G, shares in groups:
            for behaviour, advantage in zip(drawn, advantages_G, strict=True):
                for each, share in shares.items():
                    logits[kind][each] += scale * advantage * ((each == behaviour) - share)
                calling += scale * advantage * ((behaviour != "skip") - (1.0 - shares.get("skip", 0.0)))
    return policy()


def _batch(
    claim: Claim,
    arm: Arm,
    played: Mapping[Kind, Sequence[Sequence[Tries]]],
    shares: Mapping[Kind, Shares],
    weights: np.ndarray,
    rng: np.random.Generator,
) -> list[tuple[Kind, list[Behaviour], np.ndarray, Shares]]:
    """Groups of a step; with dynamic sampling those with unequal rewards."""
    replaces = claim.method == "videozoomer" and "algorithm.filter_groups.enable=False" not in arm.options
    kinds, groups = list(played), []
    for _ in range(claim.plan.batch_size * (_MOST_DRAWS if replaces else 1)):
        kind = kinds[rng.choice(len(kinds), p=weights / weights.sum())]
        drawn, rewards_G = draw_group(rng, played[kind][int(rng.integers(len(played[kind])))], shares[kind])
        if replaces and len(set(rewards_G)) == 1:
            continue
        groups.append((kind, drawn, advantages_of(rewards_G, claim.method), shares[kind]))
        if len(groups) == claim.plan.batch_size:
            break
    return groups


def _likeliest(shares: Shares) -> dict[Behaviour, float]:
    """Shares of greedy answers."""
    chosen = max(shares, key=lambda each: shares[each])
    return {each: float(each == chosen) for each in shares}


def _softmax(logits: Mapping[Behaviour, float], calling: float) -> dict[Behaviour, float]:
    raised = {each: np.exp(logit + (calling if each != "skip" else 0.0)) for each, logit in logits.items()}
    return {each: float(value / sum(raised.values())) for each, value in raised.items()}


def _mean(
    metric: Metric, shares: Mapping[Kind, Mapping[Behaviour, float]], shown: Mapping[Kind, Sequence[Sequence[Tries]]]
) -> float:
    """The metric of a policy on the questions that count; the first rollout of a group sees what validation shows."""
    return float(
        np.mean(
            [
                sum(
                    share * np.mean([metric.of(one.outcome, one.iou, one.tools) for one in members[0][each]])
                    for each, share in shares[kind].items()
                )
                for kind in metric.kinds
                for members in shown[kind]
            ]
        )
    )
