"""Flagged rollouts stay out of the loss and of their group's mean, and a rollout has one advantage, however many
sequences it has: verl's own code on an in-memory queue."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from transfer_queue import KVBatchMeta
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.core_algos import FixedKLController
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.tensordict_utils import maybe_fix_3d_position_ids

from verl_video_tools.core.errors import JudgeError, UsageError, VideoToolsError
from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.records import RecordWriter, read_records
from verl_video_tools.verl_plugin import trainer_advantages, trainer_packing, trainer_records
from verl_video_tools.verl_plugin.settings import pack_record
from verl_video_tools.verl_plugin.trainer import VideoToolsColocateAsyncTrainer, VideoToolsTrainer
from verl_video_tools.verl_plugin.trainer_packing import lengthen
from verl_video_tools.verl_plugin.trainer_records import ValidationTap
from verl_video_tools.verl_plugin.trainer_rows import equal_groups, group_rollouts, spread_padding


def test_groups_without_a_difference_are_named() -> None:
    uids = ["a", "a", "b", "b", "c"]
    assert equal_groups(uids, [1.05, 1.05, 1.05, 1.0, 0.0]) == {"a", "c"}


class MemoryQueue:
    """The part of TransferQueue's key-value interface that the advantage step uses.

    Rows are packed by TransferQueue's own code, without the Ray actors that hold them in a run.
    """

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> TensorDict:
        data = TensorDict({}, batch_size=len(keys))
        for name in select_fields or self.rows[keys[0]]:
            values = [self.rows[key][name] for key in keys if name in self.rows[key]]
            if len(values) == len(keys):
                data[name] = AsyncSimpleStorageManager._pack_field_values(values)
        return data

    def kv_batch_put(
        self, keys: list[str], partition_id: str, fields: TensorDict, tags: list[dict[str, Any]] | None = None
    ) -> KVBatchMeta:
        for name in fields.keys():  # noqa: SIM118  (a TensorDict iterates over rows)
            for i, key in enumerate(keys):
                value = fields[name][i]
                self.rows.setdefault(key, {})[name] = (
                    value if isinstance(value, torch.Tensor) else getattr(value, "data", value)
                )
        return KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id=partition_id)


def run(
    monkeypatch: pytest.MonkeyPatch,
    rollouts: list[tuple[str, float, bool]],
    unjudged: tuple[str, ...] = (),
    on_failure: str = "flag",
    adv_estimator: str = "grpo",
    penalties: Mapping[str, float] | None = None,
    trainer: VideoToolsTrainer | None = None,
    judged: tuple[str, ...] = (),
) -> dict[str, dict[str, Any]]:
    """Advantage step over rollouts given as (key, score, flagged); the judge failed on those in `unjudged`.

    Args:
        penalties: taken from the reward at the first token, for leaving the reference.
    """

    def reward_info(key: str) -> dict[str, float]:
        return {"judge_failed": float(key in unjudged), "judge_calls": float(key in (*unjudged, *judged))}

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
            "ref_log_prob": torch.tensor([-(penalties or {}).get(key, 0.0), 0.0, 0.0]),
            "extra_fields": {**pack_record(trajectory), "reward_extra_info": reward_info(key)},
        }
    queue = MemoryQueue(rows)
    monkeypatch.setattr(trainer_advantages, "tq", queue)
    monkeypatch.setattr(trainer_base, "tq", queue)
    trainer = trainer or object.__new__(VideoToolsTrainer)  # the step needs nothing but a config
    algorithm = {"use_kl_in_reward": penalties is not None, "kl_penalty": "kl", "adv_estimator": adv_estimator}
    algorithm |= {"gamma": 1.0, "lam": 1.0}
    trainer.kl_ctrl_in_reward = FixedKLController(kl_coef=1.0)
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    rollout = {"n": 4, "custom": {"video_tools": {"judge": judge}}}
    trainer.config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": rollout}})
    trainer.global_steps = 1
    trainer._judge_watch.begin_step()
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


def test_a_step_without_any_verdict_updates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would add KL and entropy to a loss without advantages, and its optimizer momentum and weight decay."""
    updated: list[KVBatchMeta] = []
    monkeypatch.setattr(trainer_base.PPOTrainer, "_update_actor", lambda self, batch, metrics: updated.append(batch))
    trainer = object.__new__(VideoToolsTrainer)
    trainer._nothing_judged = False
    rollouts = [("a_0_0", 0.0, False), ("a_1_0", 0.0, False)]
    run(monkeypatch, rollouts, unjudged=("a_0_0",), trainer=trainer)
    judged, not_judged = (KVBatchMeta(keys=[], tags=[], partition_id=name) for name in ("judged", "not judged"))
    trainer._update_actor(judged, {})
    run(monkeypatch, rollouts, unjudged=("a_0_0", "a_1_0"), trainer=trainer)
    assert trainer._update_actor(not_judged, {}) is not_judged
    assert [batch.partition_id for batch in updated] == ["judged"]


def test_a_run_ends_after_steps_without_any_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that ask no judge neither count nor begin the count anew; a single verdict does."""
    rollouts = [("a_0_0", 0.0, False), ("a_1_0", 1.0, False)]
    monkeypatch.setattr(trainer_base.PPOTrainer, "_update_actor", lambda self, batch, metrics: batch)
    trainer = object.__new__(VideoToolsTrainer)
    both = ("a_0_0", "a_1_0")
    run(monkeypatch, rollouts, unjudged=both, trainer=trainer)
    run(monkeypatch, rollouts, unjudged=both, trainer=trainer)
    run(monkeypatch, rollouts, unjudged=("a_0_0",), judged=("a_1_0",), trainer=trainer)
    run(monkeypatch, rollouts, unjudged=both, trainer=trainer)
    run(monkeypatch, rollouts, trainer=trainer)
    run(monkeypatch, rollouts, unjudged=("a_0_0",), trainer=trainer)  # its sibling's question needs no judge
    with pytest.raises(JudgeError, match=r"step 1: the judge gave no verdict at all during 3 steps in a row"):
        run(monkeypatch, rollouts, unjudged=both, trainer=trainer)


def test_a_step_that_can_never_be_filled_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every rollout fails, all rewards of a group are equal, and dynamic sampling asks for others without end."""
    monkeypatch.setattr(trainer_base.PPOTrainer, "_add_prompts_to_generate", lambda self, num_prompts: num_prompts)
    steps: list[str] = []

    def step(self: VideoToolsTrainer, *_: Any) -> None:
        steps.append(self._phase)
        while len(steps) < 3:  # as verl's replay buffer while it waits for a full batch
            self._add_prompts_to_generate(8)

    monkeypatch.setattr(trainer_base.PPOTrainer, "_step_once", step)
    trainer = object.__new__(VideoToolsTrainer)
    trainer.config = OmegaConf.create(
        {"algorithm": {"filter_groups": {"enable": True}}, "data": {"train_batch_size": 4}}
    )
    trainer.global_steps, trainer._max_refill_batches = 7, 5
    for _ in range(2):  # a second step may ask as often
        with pytest.raises(VideoToolsError, match=r"step 7: 5 batches of 4 questions.*max_refill_batches"):
            trainer._step_once({}, {}, 4)
        assert trainer._num_refilled == 24
    trainer.config.algorithm.filter_groups.enable = False
    assert trainer._add_prompts_to_generate(1000) == 1000


def test_progress_names_what_verl_does_at_the_end_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = object.__new__(VideoToolsTrainer)
    trainer._phase, phases = "generating", []
    for name in ("on_sample_end", "_save_checkpoint", "on_step_end"):
        monkeypatch.setattr(PPOTrainerSync, name, lambda self: phases.append(self._phase))
    for hook in (trainer.on_sample_end, trainer._save_checkpoint, trainer.on_step_end):  # verl's order
        hook()
    assert phases[1:] == ["saving a checkpoint", "sending the new weights to the engine"]
    assert trainer._phase == phases[-1]


@pytest.mark.parametrize("on_failure", ["flag", "stop"])
def test_validation_without_verdicts(monkeypatch: pytest.MonkeyPatch, on_failure: str, tmp_path: Path) -> None:
    metrics = {"val-aux/world/judge_failed/mean@1": 0.25, "val-core/world/acc/mean@1": 0.5}

    def validate(self: VideoToolsTrainer) -> dict[str, float]:
        self._validation_lines.append({"uid": "a"})
        return metrics

    monkeypatch.setattr(trainer_base.PPOTrainer, "_validate", validate)
    trainer = object.__new__(VideoToolsTrainer)
    trainer._records, trainer._validation_lines = RecordWriter(tmp_path), [{"uid": "of an earlier validation"}]
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"custom": {"video_tools": {"judge": judge}}}}})
    trainer.global_steps = 0
    if on_failure == "flag":
        assert trainer._validate() == metrics
    else:
        with pytest.raises(JudgeError, match="gave no verdict"):
            trainer._validate()
    assert (tmp_path / "val_step_000000.jsonl").read_text() == '{"uid": "a"}\n'


def test_batches_of_validation_are_seen_before_verl_clears_them() -> None:
    class Buffer:
        poll_interval = 2.0

        def sample(self, *, partition_id: str, batch_size: int) -> tuple[str, dict]:
            return f"{batch_size} of {partition_id}", {}

    seen: list[Any] = []
    tap = ValidationTap(Buffer(), seen.append)  # type: ignore[arg-type]  # all of verl's buffer that the tap uses
    assert tap.sample(partition_id="train", batch_size=2) == ("2 of train", {})
    assert tap.sample(partition_id="val", batch_size=3) == ("3 of val", {})
    assert seen == ["3 of val"] and tap.poll_interval == 2.0


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


@pytest.mark.parametrize(
    ("registered", "mode"), [(VideoToolsTrainer, "sync"), (VideoToolsColocateAsyncTrainer, "colocate_async")]
)
def test_the_mode_that_verl_sees_is_its_own(registered: type[trainer_base.PPOTrainer], mode: str) -> None:
    trainer = object.__new__(registered)
    trainer.trainer_mode = "video_tools"  # as verl's constructor sets it from the options
    assert trainer.trainer_mode == mode
    assert issubclass(registered, trainer_base.get_trainer_cls(mode))


# ------------------------------------------------------------------------------------ several sequences in one rollout


def test_an_estimator_that_takes_each_sequence_for_a_rollout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout of three turns would weigh three times as much in its group's mean as one of a single turn."""
    rollouts = [("a_0_0", 1.0, False), ("a_0_1", 1.0, False), ("a_0_2", 1.0, False), ("a_1_0", 0.0, False)]
    with pytest.raises(UsageError, match="adv_estimator=rloo"):
        run(monkeypatch, rollouts, adv_estimator="rloo")
    run(monkeypatch, rollouts)
    run(monkeypatch, [rollouts[0], rollouts[3]], adv_estimator="rloo")


def test_rows_are_grouped_by_rollout_and_ordered_by_turn() -> None:
    rollouts = group_rollouts(["a_0_1", "b-2_1_0", "a_0_10", "a_0_2", "a_1_0", "a_0_0"])
    assert [(rollout.uid, rollout.session_id) for rollout in rollouts] == [("a", 0), ("b-2", 1), ("a", 1)]
    assert rollouts[0].keys == ("a_0_0", "a_0_1", "a_0_2", "a_0_10")


@pytest.mark.parametrize(("num_ranks", "num_mini_batches"), [(1, 1), (1, 3), (2, 3), (3, 2)])
def test_every_mini_batch_gets_its_share_of_padding(num_ranks: int, num_mini_batches: int) -> None:
    is_padding = [row >= 7 for row in range(12)] if num_ranks == 1 else [row % 3 > 0 for row in range(12)]
    order = spread_padding(is_padding, num_ranks, num_mini_batches)
    assert sorted(order) == list(range(12))
    per_rank, size = 12 // num_ranks, 12 // num_ranks // num_mini_batches
    for first in range(0, 12, per_rank):
        rows = order[first : first + per_rank]
        assert sorted(rows) == list(range(first, first + per_rank))  # none has moved to another rank
        shares = [sum(is_padding[row] for row in rows[at : at + size]) for at in range(0, per_rank, size)]
        assert max(shares) - min(shares) <= 1


class Step:
    """A trainer over rollouts of several sequences: group a has rollouts of 1 and 3 turns, group b of 2 and 2.

    Sequence k of a rollout has k + 2 response tokens, the first of them with mask 0.

    Args:
        log_probs: the engine was asked for them (`rollout.calculate_log_probs`).
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        flagged: tuple[str, ...] = (),
        ranks: int = 1,
        log_probs: bool = True,
    ) -> None:
        scores = {"a_0": 1.0, "a_1": 0.0, "b_0": 0.25, "b_1": 0.75}
        num_turns = {"a_0": 1, "a_1": 3, "b_0": 2, "b_1": 2}
        rows, tags = {}, []
        for name, score in scores.items():
            for turn in range(num_turns[name]):
                extra_fields: dict[str, Any] = {"reward_extra_info": {"score": score}}
                extra_fields |= {"num_generated_tokens": turn + 1, "num_observation_tokens": 1}
                if turn == num_turns[name] - 1:
                    flags = ["aborted"] if name in flagged else []
                    extra_fields |= pack_record(Trajectory(method="framethinker", question=name, flags=flags))
                length = turn + 2
                zeros, mask = torch.zeros(length), torch.tensor([0] + [1] * (length - 1))
                rows[f"{name}_{turn}"] = {
                    "uid": name[0],
                    "prompts": torch.arange(3 + turn),
                    "responses": torch.arange(length),
                    "input_ids": torch.arange(3 + turn + length),
                    "position_ids": torch.arange(3 + turn + length).repeat(4, 1),
                    "multi_modal_inputs": {"pixel_values": torch.ones(4)},
                    "response_mask": mask,
                    "loss_mask": mask.clone(),
                    "rm_scores": torch.tensor([0.0] * (length - 1) + [score]),
                    **({"rollout_log_probs": zeros} if log_probs else {}),
                    "extra_fields": extra_fields,
                    "data_source": "world",
                    "reward_model": {"ground_truth": "B"},
                    "extra_info": {"index": 7},
                    "agent_name": "framethinker",
                }
                tags.append({"seq_len": 3 + turn + length, "prompt_len": 3 + turn, "response_len": length})
        self.queue = MemoryQueue(rows)
        for module in (trainer_advantages, trainer_records, trainer_base, padding_utils, trainer_packing):
            monkeypatch.setattr(module, "tq", self.queue)
        trainer = object.__new__(VideoToolsTrainer)
        algorithm = {"use_kl_in_reward": False, "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0}
        algorithm["norm_adv_by_std_in_grpo"] = False
        actor = {"ppo_mini_batch_size": 3}  # times 2 rollouts: 6 sequences
        trainer.config = OmegaConf.create(
            {
                "algorithm": algorithm,
                "actor_rollout_ref": {"rollout": {"n": 2}, "actor": actor},
                "trainer": {"critic_warmup": 0},
            }
        )
        trainer.global_steps, trainer.use_critic, trainer._record_tokens = 1, False, True
        trainer._log_probs = ("rollout_log_probs",) if log_probs else ()
        trainer.tokenizer = SimpleNamespace(eos_token_id=9, pad_token_id=9)
        trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": list(range(ranks))})
        self.trainer = trainer
        batch = KVBatchMeta(keys=list(rows), tags=tags, partition_id="train")
        self.batch = trainer._balance_batch(batch, {})
        for key in self.batch.keys:  # the actor's pass
            rows[key]["old_log_probs"] = torch.zeros(len(rows[key]["responses"]))

    def advantages(self) -> dict[str, set[float]]:
        """Those that each rollout's sampled tokens get."""
        self.trainer._compute_advantage(self.batch, {})
        values: dict[str, set[float]] = {}
        for key, row in self.queue.rows.items():
            assert not row["advantages"][row["response_mask"] == 0].any()
            values.setdefault(key.rsplit("_", 1)[0], set()).update(
                row["advantages"][row["response_mask"] == 1].tolist()
            )
        return values


@pytest.mark.parametrize("ranks", [1, 2])
def test_padding_shows_a_picture_and_fills_no_mini_batch(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    step = Step(monkeypatch, ranks=ranks)
    assert len(step.batch.keys) == len(step.batch.tags) == 12  # 8 sequences for mini-batches of 6
    padded = [tag.get("is_padding", False) for tag in step.batch.tags]
    per_rank, size = 12 // ranks, 6 // ranks
    for number in range(2):  # verl's mini-batches: consecutive rows of each rank
        rows = [first + number * size + i for first in range(0, 12, per_rank) for i in range(size)]
        assert 1 <= sum(padded[row] for row in rows) <= 3
    shortest = step.queue.rows["a_0_0"]
    for key, is_padding, tag in zip(step.batch.keys, padded, step.batch.tags, strict=True):
        row = step.queue.rows[key]
        assert "pixel_values" in row["multi_modal_inputs"]
        assert tag["seq_len"] == len(row["input_ids"]) == len(row["prompts"]) + len(row["responses"])
        assert row["position_ids"].shape == (4, tag["seq_len"])
        if is_padding:
            assert row["input_ids"].tolist()[:5] == shortest["input_ids"].tolist()
            assert not row["response_mask"].any() and not row["loss_mask"].any() and not row["rm_scores"].any()
            assert len(row["response_mask"]) == len(row["rollout_log_probs"]) == len(row["responses"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_positions_of_equally_long_sequences_are_packed_as_verl_reads_them(
    monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """What a rank's worker gets, by the code of TransferQueue and verl: equal lengths alone would be packed as ragged
    in another axis."""
    step = Step(monkeypatch, ranks=ranks)
    names = ["a_0_0", "b_0_0", "b_1_0"]  # each of 3 + 2 tokens; padding copies one of them
    tags = [{"seq_len": 5, "prompt_len": 3, "response_len": 2} for _ in names]
    batch = step.trainer._balance_batch(KVBatchMeta(keys=names, tags=tags, partition_id="train"), {})
    per_rank = len(batch.keys) // ranks
    for first in range(0, len(batch.keys), per_rank):
        rows = slice(first, first + per_rank)
        data = step.queue.kv_batch_get(batch.keys[rows], "train", ["position_ids"])
        maybe_fix_3d_position_ids(data)
        shapes = [tuple(positions.shape) for positions in data["position_ids"].unbind()]
        assert shapes == [(4, tag["seq_len"]) for tag in batch.tags[rows]]


@pytest.mark.parametrize("log_probs", [True, False])
def test_of_equally_long_sequences_one_becomes_longer(monkeypatch: pytest.MonkeyPatch, log_probs: bool) -> None:
    step = Step(monkeypatch, log_probs=log_probs)
    names = ("a_0_0", "b_0_0", "b_1_0")  # each of 3 + 2 tokens
    tags = [{"seq_len": 5, "prompt_len": 3, "response_len": 2} for _ in names]
    batch = KVBatchMeta(keys=list(names), tags=tags, partition_id="train")
    lengthen(batch, 1, step.trainer.tokenizer.pad_token_id, step.trainer._log_probs)
    assert [tag["seq_len"] for tag in batch.tags] == [5, 6, 5]
    rows = [step.queue.rows[name] for name in names]
    assert [row["position_ids"].shape for row in rows] == [(4, 5), (4, 6), (4, 5)]
    added = [row[name].tolist()[-1] for row in rows[1:2] for name in ("response_mask", "loss_mask", "rm_scores")]
    assert added == [0, 0, 0]
    lengths = {name: len(value) for name, value in rows[1].items() if name in ("responses", "rollout_log_probs")}
    assert lengths == dict.fromkeys(("responses", *["rollout_log_probs"] * log_probs), 3)


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


def test_a_rollout_is_one_line_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(monkeypatch)
    step.advantages()
    lines = step.trainer._lines(step.batch, 1, trained=True)
    by_name = {f"{line['uid']}_{line['session_id']}": line for line in lines}
    assert sorted(by_name) == ["a_0", "a_1", "b_0", "b_1"]
    line = by_name["a_1"]
    counts = [line[f"num_{name}"] for name in ("sequences", "prompt_tokens", "generated_tokens", "observation_tokens")]
    assert counts == [3, 3 + 4 + 5, 1 + 2 + 3, 3]
    assert (line["advantage"], line["reward"], line["trajectory"].question) == (-0.5, {"score": 0.0}, "a_1")
    assert [len(sequence["prompts"]) for sequence in line["sequences"]] == [3, 4, 5]
    assert line["sequences"][0].keys() == {
        *("prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs", "advantages")
    }
    validation = step.trainer._lines(step.batch, 1, trained=False)
    assert all(line["advantage"] is None for line in validation)
    assert validation[0]["sequences"][0].keys() == {"prompts", "responses", "response_mask", "rollout_log_probs"}


def test_records_of_an_engine_that_gives_no_log_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(monkeypatch, log_probs=False)
    step.advantages()
    assert "rollout_log_probs" not in step.trainer._lines(step.batch, 1, trained=True)[0]["sequences"][0]


def test_a_flagged_rollout_has_generated_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mask is 0 by then, so that it does not train."""
    step = Step(monkeypatch, flagged=("a_1",))
    step.advantages()
    (line,) = [line for line in step.trainer._lines(step.batch, 1, trained=True) if line["trajectory"].flags]
    assert (line["num_generated_tokens"], line["num_observation_tokens"]) == (1 + 2 + 3, 3)


def test_a_column_of_any_type_is_kept_as_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    step = Step(monkeypatch)
    step.advantages()
    values = {"day": date(2026, 1, 2), "price": Decimal("1.5"), "at": np.datetime64("2026-01-02T03:04"), "key": b"k"}
    for row in step.queue.rows.values():
        row["extra_info"] = {"index": 7, "shape": np.array([2, 3]), "depth": np.array(4), **values}
    lines = step.trainer._lines(step.batch, 1, trained=True)
    (read, *_) = read_records(RecordWriter(tmp_path).write(1, lines))
    assert read["extra_info"] == {
        **{"index": 7, "shape": [2, 3], "depth": 4},
        **{"day": "2026-01-02", "price": "1.5", "at": "2026-01-02 03:04:00", "key": "b'k'"},
    }


@pytest.mark.parametrize("reward_model", ["B", None, {"style": "rule"}])
def test_a_row_without_a_truth_has_its_line_too(monkeypatch: pytest.MonkeyPatch, reward_model: Any) -> None:
    step = Step(monkeypatch, flagged=("a_1",))
    step.advantages()
    for row in step.queue.rows.values():
        row["reward_model"] = reward_model
    lines = step.trainer._lines(step.batch, 1, trained=True)
    assert [line["ground_truth"] for line in lines] == [None] * 4
