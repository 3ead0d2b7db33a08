"""The tap on what a step has trained on, for verl's option `trainer.checkpoint_callback_class`.

verl calls it after each checkpoint, while TransferQueue still holds the step's rows; `trainer.save_freq=1` makes it one
after each step. The checkpoints are the policies that the audit compares the engine's log-probabilities with.
"""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from verl_video_tools.loop_check.records import RunSettings, Trained
from verl_video_tools.loop_check.worker import tap_folder
from verl_video_tools.verl_plugin.settings import plain_dict

_PARTITION = "train"


class TrainedTap(CheckpointCallback):
    """Writes what each saved step has trained on."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._folder = tap_folder()
        self._folder.write_settings(run_settings(config))

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        for row in trained_rows(global_step, optional_fields(self.config)):
            self._folder.write(row)


def run_settings(config: Any) -> RunSettings:
    """What the audit must know of a run's options."""
    rollout = config.actor_rollout_ref.rollout
    return RunSettings(
        estimator=str(config.algorithm.adv_estimator),
        divides_by_std=bool(config.algorithm.get("norm_adv_by_std_in_grpo", True)),
        kl_in_reward=bool(config.algorithm.use_kl_in_reward),
        temperature=float(rollout.temperature),
        top_p=float(rollout.top_p),
        top_k=int(rollout.top_k),
        logprobs_mode=rollout.get("logprobs_mode"),
        mm_processor_kwargs=plain_dict(OmegaConf.select(config, "data.mm_processor_kwargs")),
    )


def optional_fields(config: Any) -> list[str]:
    """Fields of rows that not every run has: log-probabilities of the engine, and of the actor."""
    fields = ["rollout_log_probs"] if config.actor_rollout_ref.rollout.calculate_log_probs else []
    bypass = OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode", default=False)
    return fields if bypass else [*fields, "old_log_probs"]


def trained_rows(step: int, fields: list[str]) -> list[Trained]:
    """The sequences in the queue that have advantages: of the step's batch, without verl's padding."""
    listed = (tq.kv_list(_PARTITION) or {}).get(_PARTITION, {})
    keys = [key for key, tag in listed.items() if not tag.get("is_prompt") and not tag.get("is_padding")]
    rows = []
    for key in keys:
        try:
            data = tq.kv_batch_get(
                keys=[key],
                partition_id=_PARTITION,
                select_fields=["response_mask", "advantages", "rm_scores", *fields],
            )
        except (RuntimeError, ValueError):  # of a group that this step has not trained on
            continue
        rows.append(_trained(step, key, data, fields))
    return rows


def _trained(step: int, key: str, data: Any, fields: list[str]) -> Trained:
    uid, session_id, sequence = key.rsplit("_", 2)
    mask = data["response_mask"][0]
    advantages = data["advantages"][0][mask.bool()]

    def listed(name: str) -> list[float] | None:
        return data[name][0].to(torch.float32).tolist() if name in fields else None

    return Trained(
        uid=uid,
        session_id=int(session_id),
        sequence=int(sequence),
        step=step,
        response_mask=mask.int().tolist(),
        log_probs=listed("rollout_log_probs"),
        actor_log_probs=listed("old_log_probs"),
        advantage=float(advantages[0]) if len(advantages) else 0.0,
        score=float(data["rm_scores"][0].sum()),
    )
