"""Flagged rollouts stay out of the loss and of their group's mean, and a rollout has one advantage, however many
sequences it has: verl's own code on an in-memory queue."""

# Imports after a skip: what they name is not there on every machine.

import pytest

pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")

from tests.verl_plugin.trainer_batches import Step, advantages, run
from verl_video_tools.core.errors import UsageError, VideoToolsError


def test_a_flagged_rollout_moves_no_siblings_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    valid = [("a_0_0", 1.0, False), ("a_1_0", 0.0, False), ("a_2_0", 0.0, False)]
    without = advantages(run(monkeypatch, valid))
    rows = run(monkeypatch, [*valid, ("a_3_0", 0.0, True)])
    together = advantages(rows)
    assert {key: together[key] for key in without} == without
    assert without["a_0_0"][0] > 0 > without["a_1_0"][0]
    assert together["a_3_0"] == [0.0, 0.0, 0.0]
    assert rows["a_3_0"]["response_mask"].tolist() == rows["a_3_0"]["loss_mask"].tolist() == [0, 0, 0]
    assert rows["a_0_0"]["response_mask"].tolist() == [1, 0, 1]


def test_a_rollout_whose_siblings_are_all_flagged_has_no_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(
        monkeypatch,
        [("a_0_0", 1.0, False), ("a_1_0", 0.0, True), ("b_0_0", 1.0, False), ("b_1_0", 0.0, False)],
    )
    assert advantages(rows)["a_0_0"] == [0.0, 0.0, 0.0]
    assert advantages(rows)["b_0_0"][0] > 0


@pytest.mark.parametrize(("score", "group_size"), [(1.05, 8), (1.55, 8), (1.4, 8), (2.7, 8), (2.6, 16), (1.02, 13)])
@pytest.mark.parametrize("adv_estimator", ["grpo", "rloo"])
def test_equal_rewards_teach_nothing(
    monkeypatch: pytest.MonkeyPatch, score: float, group_size: int, adv_estimator: str
) -> None:
    """verl divides what its float32 mean is off by a deviation as small: up to 0.2, the same for every rollout."""
    group = [(f"a_{i}_0", score, False) for i in range(group_size)]
    rows = run(monkeypatch, [*group, ("b_0_0", 1.0, False), ("b_1_0", 0.0, False)], adv_estimator=adv_estimator)
    values = {key: row["advantages"].tolist() for key, row in rows.items()}
    assert {tuple(values[key]) for key, _, _ in group} == {(0.0, 0.0, 0.0)}
    assert values["b_0_0"][0] > 0 > values["b_1_0"][0]


def test_rewards_that_a_flagged_sibling_leaves_equal_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [(f"a_{i}_0", 1.05, False) for i in range(7)]
    rows = run(monkeypatch, [*group, ("a_7_0", 0.0, True)])
    assert {tuple(row["advantages"].tolist()) for row in rows.values()} == {(0.0, 0.0, 0.0)}


def test_rewards_with_a_penalty_in_them_are_compared_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [("a_0_0", 1.0, False), ("a_1_0", 1.0, False)]
    rows = run(monkeypatch, group, penalties={"a_0_0": 0.5})
    assert rows["a_0_0"]["advantages"][0] < 0 < rows["a_1_0"]["advantages"][0]


def test_an_estimator_without_groups_keeps_its_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(monkeypatch, [("a_0_0", 1.0, False), ("b_0_0", 0.0, False)], adv_estimator="reinforce_plus_plus")
    assert rows["a_0_0"]["advantages"][0] > 0 > rows["b_0_0"]["advantages"][0]


def test_a_step_without_any_valid_rollout_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VideoToolsError, match=r"all 2 rollouts failed.*why"):
        run(monkeypatch, [("a_0_0", 0.0, True), ("a_1_0", 0.0, True)])


def test_an_estimator_that_takes_each_sequence_for_a_rollout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout of three turns would weigh three times as much in its group's mean as one of a single turn."""
    rollouts = [("a_0_0", 1.0, False), ("a_0_1", 1.0, False), ("a_0_2", 1.0, False), ("a_1_0", 0.0, False)]
    with pytest.raises(UsageError, match="adv_estimator=rloo"):
        run(monkeypatch, rollouts, adv_estimator="rloo")
    run(monkeypatch, rollouts)
    run(monkeypatch, [rollouts[0], rollouts[3]], adv_estimator="rloo")


def test_a_rollout_has_one_advantage_and_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(monkeypatch)
    values = step.advantages()
    assert {name: values[name] for name in ("a_0", "a_1", "b_0", "b_1")} == {
        "a_0": {0.5},  # the group's mean is that of two rollouts, not of four sequences
        "a_1": {-0.5},
        "b_0": {-0.25},
        "b_1": {0.25},
    }


def test_all_sequences_of_a_flagged_rollout_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(monkeypatch, flagged=("a_1",))
    values = step.advantages()
    assert values["a_0"] == {0.0}  # left alone
    assert values["a_1"] == set()
    assert values["b_1"] == {0.25}
    excluded = [step.queue.rows[f"a_1_{turn}"] for turn in range(3)]
    assert not any(row["response_mask"].any() or row["loss_mask"].any() for row in excluded)
    assert {row["uid"] for row in excluded} == {"flagged_a_1_2"}
