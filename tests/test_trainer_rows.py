"""Flagged rollouts stay out of the loss and of their group's mean: verl's own code on an in-memory queue."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

trainer_module = pytest.importorskip("verl_video_tools.trainer", reason="the trainer subclasses verl's")
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from verl_video_tools.agent_loop.settings import pack_record
from verl_video_tools.errors import JudgeError, VideoToolsError
from verl_video_tools.trainer import VideoToolsTrainer, excluded_rows
from verl_video_tools.types import Trajectory


def test_flagged_rows_are_excluded_and_their_lone_sibling_is_named() -> None:
    uids = ["a", "a", "a", "b", "b", "c", "c"]
    flagged = [False, True, False, True, False, False, False]
    assert excluded_rows(uids, flagged) == ([1, 3], [4])


def test_nothing_flagged_nothing_excluded() -> None:
    assert excluded_rows(["a", "a"], [False, False]) == ([], [])


class MemoryQueue:
    """The part of TransferQueue's key-value interface that the advantage step uses."""

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        data = TensorDict({}, batch_size=len(keys))
        for name in select_fields:
            values = [self.rows[key][name] for key in keys if name in self.rows[key]]
            if len(values) == len(keys):
                tensors = isinstance(values[0], torch.Tensor)
                data[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged) if tensors else values
        return data

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        for name in fields.keys():  # noqa: SIM118  (a TensorDict iterates over rows)
            for i, key in enumerate(keys):
                value = fields[name][i]
                self.rows[key][name] = value if isinstance(value, torch.Tensor) else getattr(value, "data", value)
        return KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id=partition_id)


def run(
    monkeypatch: pytest.MonkeyPatch,
    rollouts: list[tuple[str, float, bool]],
    unjudged: tuple[str, ...] = (),
    on_failure: str = "flag",
) -> dict[str, dict[str, Any]]:
    """Advantage step over rollouts given as (key, score, flagged); the judge failed on those in `unjudged`."""
    rows = {}
    for key, score, flagged in rollouts:
        trajectory = Trajectory(method="framethinker", question="?", flags=["aborted"] if flagged else [], error="why")
        rows[key] = {
            "uid": key.rsplit("_", 2)[0],
            "response_mask": torch.tensor([1, 0, 1]),
            "loss_mask": torch.tensor([1, 0, 1]),
            "rm_scores": torch.tensor([0.0, 0.0, score]),
            "rollout_log_probs": torch.zeros(3),
            "old_log_probs": torch.zeros(3),
            "extra_fields": {**pack_record(trajectory), "reward_extra_info": {"judge_failed": float(key in unjudged)}},
        }
    queue = MemoryQueue(rows)
    monkeypatch.setattr(trainer_module, "tq", queue)
    monkeypatch.setattr(trainer_base, "tq", queue)
    trainer = object.__new__(VideoToolsTrainer)  # the step needs nothing but a config
    algorithm = {"use_kl_in_reward": False, "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0}
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    rollout = {"n": 4, "custom": {"video_tools": {"judge": judge}}}
    trainer.config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": rollout}})
    trainer.global_steps = 1
    batch = KVBatchMeta(keys=list(rows), tags=[{} for _ in rows], partition_id="train")
    trainer._compute_advantage(batch, {})
    return queue.rows


def advantages(rows: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    return {key: [round(float(value), 4) for value in row["advantages"]] for key, row in rows.items()}


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


def test_a_rollout_without_a_verdict_neither_trains_nor_moves_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    valid = [("a_0_0", 1.0, False), ("a_1_0", 0.0, False), ("a_2_0", 0.0, False)]
    without = advantages(run(monkeypatch, valid))
    rows = run(monkeypatch, [*valid, ("a_3_0", 0.0, False)], unjudged=("a_3_0",))
    assert {key: advantages(rows)[key] for key in without} == without
    assert advantages(rows)["a_3_0"] == [0.0, 0.0, 0.0]
    assert rows["a_3_0"]["response_mask"].tolist() == [0, 0, 0]


def test_a_run_that_shall_stop_without_verdicts_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = [("a_0_0", 1.0, False), ("a_1_0", 0.0, False)]
    run(monkeypatch, rollouts, on_failure="stop")
    with pytest.raises(JudgeError, match=r"step 1: the judge gave no verdict \(found 1 times\)"):
        run(monkeypatch, rollouts, unjudged=("a_1_0",), on_failure="stop")


@pytest.mark.parametrize("on_failure", ["flag", "stop"])
def test_validation_without_verdicts(monkeypatch: pytest.MonkeyPatch, on_failure: str) -> None:
    metrics = {"val-aux/world/judge_failed/mean@1": 0.25, "val-core/world/acc/mean@1": 0.5}
    monkeypatch.setattr(trainer_base.PPOTrainer, "_validate", lambda self: metrics)
    trainer = object.__new__(VideoToolsTrainer)
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"custom": {"video_tools": {"judge": judge}}}}})
    trainer.global_steps = 0
    if on_failure == "flag":
        assert trainer._validate() == metrics
    else:
        with pytest.raises(JudgeError, match="gave no verdict"):
            trainer._validate()


def test_a_rollout_whose_siblings_are_all_flagged_has_no_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(
        monkeypatch,
        [("a_0_0", 1.0, False), ("a_1_0", 0.0, True), ("b_0_0", 1.0, False), ("b_1_0", 0.0, False)],
    )
    assert advantages(rows)["a_0_0"] == [0.0, 0.0, 0.0]
    assert advantages(rows)["b_0_0"][0] > 0


def test_a_step_without_any_valid_rollout_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VideoToolsError, match=r"all 2 rollouts failed.*why"):
        run(monkeypatch, [("a_0_0", 0.0, True), ("a_1_0", 0.0, True)])


def test_the_mode_that_verl_sees_stays_sync() -> None:
    trainer = object.__new__(VideoToolsTrainer)
    trainer.trainer_mode = "video_tools"
    assert trainer.trainer_mode == "sync"
