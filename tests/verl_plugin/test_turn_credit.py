"""Credit per turn: its expectation is the gradient of what turns earn, and it lands on the tokens of its turns."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

# Imports after a skip: what they name is not there on every machine.
pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")

from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from tests.group_method import NAME
from tests.paid_turns_method import PATH
from tests.turns.framethinker import answer, choose, get
from tests.verl_plugin.group_worker import run_own_group, trained_rows
from tests.verl_plugin.harness import run_loop
from tests.verl_plugin.trainer_batches import WHOLE_BATCH, MemoryQueue, bare_trainer, update_filter
from verl_video_tools import methods
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.trajectory import Turn
from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin.batching import (
    DroppedRollouts,
    credit_turns,
    group_rollouts,
    shared_values,
    turn_advantages,
    turn_returns,
)
from verl_video_tools.verl_plugin.settings import TURN_CREDIT, TURN_REWARDS, unpack_record

VALUES = st.floats(-2, 2, allow_nan=False)


def rollouts_of_tree() -> list[tuple[list[tuple[int, int]], list[float]]]:
    """All rollouts of a small world: decisions as (state, action), and what each turn earns.

    In state 0 action 0 ends the rollout; actions 1 and 2 lead to the states 1 and 2, where each action ends it.
    """
    rewards = {(0, 0): 0.3, (0, 1): -0.2, (0, 2): 0.7, (1, 0): 1.0, (1, 1): -1.5, (2, 0): 0.1, (2, 1): 0.9}
    rollouts: list[tuple[list[tuple[int, int]], list[float]]] = [([(0, 0)], [rewards[0, 0]])]
    for first, second in itertools.product((1, 2), (0, 1)):
        decisions = [(0, first), (first, second)]
        rollouts.append((decisions, [rewards[decision] for decision in decisions]))
    return rollouts


@pytest.mark.parametrize("num_rollouts", [2, 3])
def test_the_expected_update_is_the_gradient_of_what_the_turns_earn(num_rollouts: int) -> None:
    logits = torch.tensor([[0.2, -0.4, 0.9], [0.5, -0.3, -9.0], [-0.8, 0.1, -9.0]], dtype=torch.float64)
    logits.requires_grad_()
    masks = torch.tensor([[0, 0, 0], [0, 0, -math.inf], [0, 0, -math.inf]], dtype=torch.float64)
    log_probs = torch.log_softmax(logits + masks, dim=-1)
    tree = rollouts_of_tree()
    probability = [math.prod(log_probs[place].exp() for place in decisions) for decisions, _ in tree]
    earned = sum(p * sum(rewards) for p, (_, rewards) in zip(probability, tree, strict=True))
    (truth,) = torch.autograd.grad(earned, logits, retain_graph=True)

    expected: torch.Tensor = torch.zeros((), dtype=torch.float64)
    for group in itertools.product(range(len(tree)), repeat=num_rollouts):
        weight = math.prod(float(probability[number].detach()) for number in group)
        advantages = turn_advantages([turn_returns(tree[number][1], 1.0) for number in group])
        for number, of_turns in zip(group, advantages, strict=True):
            decisions = tree[number][0]
            surrogate = sum(value * log_probs[place] for value, place in zip(of_turns, decisions, strict=True))
            expected = expected + weight * surrogate / num_rollouts
    (estimate,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(estimate, truth, rtol=0, atol=1e-9)


@given(st.lists(VALUES, max_size=6), st.floats(0, 1))
def test_a_turn_returns_what_it_and_those_after_it_earn(rewards: list[float], discount: float) -> None:
    returns = turn_returns(rewards, discount)
    for turn, value in enumerate(returns):
        later = sum(discount ** (number - turn) * rewards[number] for number in range(turn, len(rewards)))
        assert value == pytest.approx(later, abs=1e-9)


@given(st.lists(st.lists(VALUES, max_size=4), min_size=1, max_size=5))
def test_a_turn_is_compared_with_its_siblings(returns: list[list[float]]) -> None:
    for number, own in enumerate(turn_advantages(returns)):
        siblings = [other for index, other in enumerate(returns) if index != number]
        for turn, advantage in enumerate(own):
            others = [other[turn] if turn < len(other) else 0.0 for other in siblings]
            mean = sum(others) / len(others) if others else returns[number][turn]
            assert advantage == pytest.approx(returns[number][turn] - mean, abs=1e-9)


def a_rollout(rewards: list[float]) -> Trajectory:
    turns = [Turn(text="", rewards={"step": reward / 2, "look": reward / 2}) for reward in rewards]
    return Trajectory(method="paying", question="?", turns=turns)


def a_row(spans: list[tuple[int, int]], mask: list[int], number: int = 0, discount: float = 1.0) -> dict:
    ones = torch.ones(len(mask))
    credit = {"number": number, "spans": spans, "discount": discount}
    return {
        "advantages": ones * torch.tensor(mask),
        "returns": ones * torch.tensor(mask),
        "response_mask": torch.tensor(mask),
        "extra_fields": {TURN_CREDIT: credit},
    }


def credited(monkeypatch: pytest.MonkeyPatch, rows: dict[str, dict], rewards: dict[str, list[float]]) -> dict:
    queue = MemoryQueue(rows)
    monkeypatch.setattr(queue_port, "tq", queue)
    records = {key: a_rollout(values) for key, values in rewards.items()}
    credit_turns(group_rollouts(list(rows)), records, "train")
    for row in rows.values():
        assert torch.equal(row["advantages"], row["returns"])
    return {key: row["advantages"].tolist() for key, row in rows.items()}


def test_each_turn_of_a_sequence_has_its_own_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what GRPO gave, here 1; observations between turns and what was rejected get nothing."""
    rows = {
        "a_0_0": a_row([(0, 2), (4, 6)], [1, 1, 0, 0, 1, 0]),  # the last token was rejected
        "a_1_0": a_row([(0, 3)], [1, 1, 1]),
    }
    advantages = credited(monkeypatch, rows, {"a_0_0": [1.0, 2.0], "a_1_0": [0.5]})
    assert advantages == {"a_0_0": [3.5, 3.5, 0.0, 0.0, 3.0, 0.0], "a_1_0": [-1.5, -1.5, -1.5]}


def test_turns_in_sequences_of_their_own_are_found_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "a_0_1": a_row([(0, 1)], [1], number=1, discount=0.5),
        "a_0_0": a_row([(0, 2)], [1, 1], number=0, discount=0.5),
        "a_1_0": a_row([(0, 1)], [1], discount=0.5),
    }
    advantages = credited(monkeypatch, rows, {"a_0_1": [1.0, 2.0], "a_1_0": [0.0]})
    assert advantages == {"a_0_0": [3.0, 3.0], "a_0_1": [3.0], "a_1_0": [-1.0]}


def test_a_group_whose_turns_earn_nothing_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"a_0_0": a_row([(0, 1)], [1]), "a_1_0": a_row([(0, 1)], [1])}
    for row in rows.values():
        del row["extra_fields"][TURN_CREDIT]  # as rows of other methods are
    queue = MemoryQueue(rows)
    monkeypatch.setattr(queue_port, "tq", queue)
    records = {key: Trajectory(method="framethinker", question="?", turns=[Turn(text="")]) for key in rows}
    credit_turns(group_rollouts(list(rows)), records, "train")
    assert [row["advantages"].tolist() for row in rows.values()] == [[1.0], [1.0]]


@pytest.mark.parametrize(
    ("first", "second", "is_dropped"),
    [
        ([{"step": 0.0}], [{"step": 0.0}, {"step": 0.0}], True),
        ([{"step": 1.0}], [{"step": 0.0}, {"step": 1.0}], False),
        ([{"step": 1.0}], None, False),
        (None, None, True),
    ],
)
def test_dynamic_sampling_keeps_a_group_whose_turns_differ(
    monkeypatch: pytest.MonkeyPatch, first: list | None, second: list | None, is_dropped: bool
) -> None:
    rows = {
        f"a_{number}_0": {
            "rm_scores": torch.tensor([1.0]),
            "extra_fields": {"reward_extra_info": {}, **({} if turns is None else {TURN_REWARDS: turns})},
        }
        for number, turns in enumerate((first, second))
    }
    monkeypatch.setattr(queue_port, "tq", MemoryQueue(rows))
    values = shared_values(list(rows), "train", None, lambda *_: None, DroppedRollouts())
    assert values == {"a": 1.0 if is_dropped else None}


# ---------------------------------------------------------------------------------------- from the reward to the tokens

SCRIPTS = [[answer("B")], [answer("A")], [choose(20, 60), choose(100, 140), answer("A")], [get("0:03"), answer("B")]]
CREDIT = [[-0.5], [-0.5], [1 - 0.5 / 3, 0.5, 0.0], [0.5 - 1 / 3, -0.5 / 3]]
"""By hand: each turn with an executed call earns 0.5, so the returns are 0; 0; 1, 0.5, 0; 0.5, 0."""


@pytest.fixture
def paid_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.REGISTERED, NAME, PATH)


async def rollouts_in_queue(monkeypatch: pytest.MonkeyPatch, context: str, **options: Any) -> Any:
    fields = {"context": context, "time_bonus": 0.0, "look_reward": 0.5}
    return await run_own_group(monkeypatch, SCRIPTS, fields, **options)


@pytest.mark.usefixtures("paid_turns")
@pytest.mark.parametrize("context", ["append", "last_evidence"])
async def test_what_a_turn_earns_reaches_its_tokens(monkeypatch: pytest.MonkeyPatch, context: str) -> None:
    """Our loop, verl's worker, our reward manager and verl's advantage step, with rollouts that are also compared."""
    queue = await rollouts_in_queue(monkeypatch, context)
    last_keys = [rollout.keys[-1] for rollout in group_rollouts(sorted(queue.rows))]
    records = [unpack_record(queue.rows[key]["extra_fields"]) for key in last_keys]
    assert [[turn.rewards["look"] for turn in record.turns] for record in records] == [
        [0],
        [0],
        [0.5, 0.5, 0],
        [0.5, 0],
    ]
    infos = [queue.info(key) for key in last_keys]
    assert [info["look"] for info in infos] == [0.0, 0.0, 1.0, 0.5]  # told, and no part of the score
    assert [info["score"] for info in infos] == pytest.approx(
        [info["accuracy"] + info["action_bonus"] + info["curiosity"] + info["length"] for info in infos]
    )
    for module in (queue_port, trainer_base):
        monkeypatch.setattr(module, "tq", queue)
    rows = trained_rows(queue)
    advantage_step(rows, "grpo")
    scores = [info["score"] for info in infos]
    for number, of_turns in enumerate(CREDIT):
        by_grpo = scores[number] - sum(scores) / len(scores)
        found = [value for key in sorted(rows) if key.startswith(f"a_{number}_") for value in of_runs(rows[key])]
        assert found == pytest.approx([by_grpo + value for value in of_turns], abs=1e-5)


def of_runs(row: dict[str, Any]) -> list[float]:
    """The advantage of each run of sampled tokens, which all of them have."""
    runs: list[set[float]] = []
    for is_sampled, entries in itertools.groupby(
        zip(row["response_mask"].tolist(), row["advantages"].tolist(), strict=True), key=lambda entry: entry[0]
    ):
        values = {value for _, value in entries}
        if is_sampled:
            runs.append(values)
        else:
            assert values == {0.0}
    assert all(len(values) == 1 for values in runs)
    return [values.pop() for values in runs]


def advantage_step(rows: dict[str, dict[str, Any]], estimator: str) -> None:
    trainer = bare_trainer()
    algorithm = {"use_kl_in_reward": False, "adv_estimator": estimator, "gamma": 1.0, "lam": 1.0}
    algorithm["norm_adv_by_std_in_grpo"] = False
    sections = {"rollout": {"n": 4}, "actor": {"ppo_mini_batch_size": WHOLE_BATCH}}
    trainer.config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": sections})
    trainer.global_steps = 1
    trainer._updates = update_filter(trainer)
    trainer._compute_advantage(KVBatchMeta(keys=list(rows), tags=[{} for _ in rows], partition_id="train"), {})


@pytest.mark.usefixtures("paid_turns")
async def test_another_estimator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await rollouts_in_queue(monkeypatch, "append")
    monkeypatch.setattr(queue_port, "tq", queue)
    with pytest.raises(UsageError, match="adv_estimator=rloo with a method that pays single turns"):
        advantage_step(trained_rows(queue), "rloo")


@pytest.mark.usefixtures("paid_turns")
async def test_validation_sees_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's metrics of validation take each entry of a reward's breakdown for a number."""
    queue = await rollouts_in_queue(monkeypatch, "append", validate=True)
    for key in queue.rows:
        assert all(isinstance(value, float) for value in queue.info(key).values())


@pytest.mark.usefixtures("paid_turns")
async def test_a_worker_that_would_lose_the_rewards_of_turns_is_refused() -> None:
    with pytest.raises(UsageError, match=r"compares the rollouts of a group, and the agent loop worker"):
        await run_loop(SCRIPTS[0], method=NAME)


@pytest.mark.usefixtures("group_method")
async def test_rows_of_other_methods_carry_nothing_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = await run_loop(SCRIPTS[2])
    assert not {TURN_CREDIT, TURN_REWARDS} & rollout.output.extra_fields.keys()
