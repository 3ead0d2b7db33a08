"""Advantages of a group against verl's own formula, and what a lost rollout does to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from tests.loop_check.hand_made import MASK, SETTINGS, context, rollout
from verl_video_tools.loop_check.advantages import expected_advantages, group_violations
from verl_video_tools.loop_check.records import Rollout

ZEROS = {"response_mask": [0] * len(MASK)}


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=8), st.booleans())
def test_as_verls_own(scores: list[float], divides_by_std: bool) -> None:
    own, _ = compute_grpo_outcome_advantage(
        torch.tensor(scores)[:, None],
        torch.ones(len(scores), 1),
        np.zeros(len(scores), dtype=int),
        norm_adv_by_std_in_grpo=divides_by_std,
    )
    if len(set(scores)) > 1:
        assert expected_advantages(scores, divides_by_std) == pytest.approx(own[:, 0].tolist(), abs=1e-4)
    else:
        assert expected_advantages(scores, divides_by_std) == [0.0] * len(scores)


def test_a_lone_rollout_has_nothing_to_be_compared_with() -> None:
    assert expected_advantages([1.0], True) == [0.0]
    assert expected_advantages([], True) == []


def group(scores: list[float], advantages: list[float], **of_first: Any) -> list[Rollout]:
    changes: list[dict[str, Any]] = [of_first, *[{}] * (len(scores) - 1)]
    return [
        rollout(session_id=i, score=score, advantage=advantage, **change)
        for i, (score, advantage, change) in enumerate(zip(scores, advantages, changes, strict=True))
    ]


def wrong(rollouts: list[Rollout], **changes: Any) -> set[int]:
    return {number for number, messages in group_violations(rollouts, context(**changes)).items() if messages}


ALL = expected_advantages([1.0, 0.0, 0.5], True)
OTHERS = [0.0, *expected_advantages([0.0, 0.5], True)]


def test_all_count() -> None:
    assert wrong(group([1.0, 0.0, 0.5], ALL)) == set()
    assert wrong(group([1.0, 0.0, 0.5], [ALL[0], ALL[1], 0.5])) == {2}
    assert wrong(group([1.0, 0.0, 0.5], ALL), settings=replace(SETTINGS, divides_by_std=False)) == {0, 1}


def test_a_lost_one_counts_with_its_siblings() -> None:
    """As by a trainer that knows of no loss: it trains, and its siblings are compared with it."""
    lost = group([1.0, 0.0, 0.5], ALL, row={"lost": True})
    assert wrong(lost) == {0, 1, 2}


def test_a_lost_one_trains_nothing_but_moves_its_siblings() -> None:
    lost = group([1.0, 0.0, 0.5], ALL, row={"lost": True}, trained=ZEROS)
    assert wrong(lost) == {0, 1, 2}, "what is wrong with its siblings is told of the lost one, too"


def test_a_lost_one_is_left_out() -> None:
    lost = group([1.0, 0.0, 0.5], OTHERS, row={"lost": True}, trained=ZEROS)
    assert wrong(lost) == set()
    never_trained = group([1.0, 0.0, 0.5], OTHERS, row={"lost": True}, is_trained=False)
    assert wrong(never_trained) == set()


def test_one_that_a_trainer_leaves_out_does_not_count_either() -> None:
    assert wrong(group([1.0, 0.0, 0.5], OTHERS, trained=ZEROS)) == set()
    assert wrong(group([1.0, 0.0, 0.5], ALL, trained=ZEROS)) == {1, 2}


@pytest.mark.parametrize("settings", [None, replace(SETTINGS, estimator="rloo"), replace(SETTINGS, kl_in_reward=True)])
def test_where_it_cannot_be_told(settings: Any) -> None:
    found = group_violations(group([1.0, 0.0, 0.5], [9.0, 9.0, 9.0]), context(settings=settings))
    assert found == {0: None, 1: None, 2: None}


def test_a_step_that_was_not_tapped() -> None:
    rollouts = [rollout(session_id=i, is_trained=False) for i in range(2)]
    assert group_violations(rollouts, context(steps_with_trained=frozenset())) == {0: None, 1: None}
