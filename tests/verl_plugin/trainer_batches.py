"""The real trainer on an in-memory queue: advantages of single rows, and batches of several sequences a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.core_algos import FixedKLController
from verl.trainer.ppo.v1 import trainer_base

from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin.alarms import JudgeWatch
from verl_video_tools.verl_plugin.batching import UpdateFilter
from verl_video_tools.verl_plugin.run_logging import RunLogging
from verl_video_tools.verl_plugin.settings import TrainerOptions, judge_config, pack_record
from verl_video_tools.verl_plugin.trainer import VideoToolsTrainer

WHOLE_BATCH = 64
"""Of `ppo_mini_batch_size`: more than any batch here."""


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
    update: int = 0,
    num_updates: int = 1,
    flagged_mask: Sequence[int] = (1, 0, 1),
) -> dict[str, dict[str, Any]]:
    """Advantage step over rollouts given as (key, score, flagged); the judge failed on those in `unjudged`.

    Args:
        penalties: taken from the reward at the first token, for leaving the reference.
        update: number of the local update in its step, which has `num_updates`.
        flagged_mask: of those that are flagged; zeros, where they have not reached the engine.
    """

    def reward_info(key: str) -> dict[str, float]:
        return {"judge_failed": float(key in unjudged), "judge_calls": float(key in (*unjudged, *judged))}

    rows = {}
    for key, score, flagged in rollouts:
        trajectory = Trajectory(method="framethinker", question="?", flags=["aborted"] if flagged else [], error="why")
        rows[key] = {
            "uid": key.rsplit("_", 2)[0],
            "response_mask": torch.tensor(flagged_mask if flagged else (1, 0, 1)),
            "loss_mask": torch.tensor(flagged_mask if flagged else (1, 0, 1)),
            "rm_scores": torch.tensor([0.0, 0.0, score]),
            "rollout_log_probs": torch.zeros(3),
            "old_log_probs": torch.zeros(3),
            "ref_log_prob": torch.tensor([-(penalties or {}).get(key, 0.0), 0.0, 0.0]),
            "extra_fields": {**pack_record(trajectory), "reward_extra_info": reward_info(key)},
        }
    queue = MemoryQueue(rows)
    monkeypatch.setattr(queue_port, "tq", queue)
    monkeypatch.setattr(trainer_base, "tq", queue)
    trainer = trainer or object.__new__(VideoToolsTrainer)  # the step needs nothing but a config
    algorithm = {"use_kl_in_reward": penalties is not None, "kl_penalty": "kl", "adv_estimator": adv_estimator}
    correction = RolloutCorrectionConfig.disabled()  # verl's default
    algorithm |= {"gamma": 1.0, "lam": 1.0, "rollout_correction": {name: correction[name] for name in correction}}
    trainer.kl_ctrl_in_reward = FixedKLController(kl_coef=1.0)
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    rollout = {"n": 4, "custom": {"video_tools": {"judge": judge}}}
    actor = {"ppo_mini_batch_size": WHOLE_BATCH}
    trainer.config = OmegaConf.create(
        {"algorithm": algorithm, "actor_rollout_ref": {"rollout": rollout, "actor": actor}}
    )
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
    trainer.global_steps = 1
    trainer.parameter_sync_step, trainer.local_trigger_step = num_updates, update
    if not hasattr(trainer, "_updates"):
        trainer._updates = update_filter(trainer)
    trainer._updates.skips_update = False
    if update == 0:
        trainer._updates.begin_step()
    batch = KVBatchMeta(keys=list(rows), tags=[{} for _ in rows], partition_id="train")
    trainer._compute_advantage(batch, {})
    return queue.rows


def advantages(rows: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    return {key: [round(float(value), 4) for value in row["advantages"]] for key, row in rows.items()}


def update_filter(trainer: Any) -> UpdateFilter:
    """The one that the trainer's constructor makes, of its configuration."""
    return UpdateFilter(trainer.config.algorithm, JudgeWatch(judge_config(trainer.config)))


def run_logging(trainer: Any, folder: Path, **options: Any) -> RunLogging:
    """The one that the trainer's constructor makes, which writes into a folder."""
    sections = {"trainer": {}, "algorithm": {}, "actor_rollout_ref": {"rollout": {"calculate_log_probs": False}}}
    place = {"trainer": {"default_local_dir": str(folder)}}
    config = OmegaConf.merge(sections, trainer.config, place)
    return RunLogging(config, TrainerOptions(**options), trainer._router_metrics)


def bare_trainer(kind: Any = VideoToolsTrainer) -> Any:
    """A trainer that nothing has made, at the only update of its step."""
    trainer = object.__new__(kind)
    trainer.parameter_sync_step, trainer.local_trigger_step = 1, 0
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
    return trainer


def make_trainer(ranks: int = 1, log_probs: bool = True) -> VideoToolsTrainer:
    """A trainer that can balance a batch and compute its advantages, in mini-batches of 6 sequences; it has no worker.

    Args:
        log_probs: the engine was asked for them (`rollout.calculate_log_probs`).
    """
    trainer = bare_trainer()
    algorithm = {"use_kl_in_reward": False, "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0}
    algorithm["norm_adv_by_std_in_grpo"] = False
    actor = {"ppo_mini_batch_size": 3}  # times 2 rollouts: 6 sequences
    trainer.config = OmegaConf.create(
        {
            "algorithm": algorithm,
            "actor_rollout_ref": {"rollout": {"n": 2, "calculate_log_probs": log_probs}, "actor": actor},
            "trainer": {"critic_warmup": 0},
        }
    )
    trainer.global_steps, trainer.use_critic = 1, False
    trainer._updates = update_filter(trainer)
    trainer.tokenizer = SimpleNamespace(eos_token_id=9, pad_token_id=9)
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": list(range(ranks))})
    return trainer


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
                    extra_fields |= {"num_cached_tokens": 7, "num_sampled_tokens": 9}
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
        for module in (queue_port, trainer_base, padding_utils):
            monkeypatch.setattr(module, "tq", self.queue)
        self.trainer = make_trainer(ranks, log_probs)
        batch = KVBatchMeta(keys=list(rows), tags=tags, partition_id="train")
        self.batch = self.trainer._balance_batch(batch, {})
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
