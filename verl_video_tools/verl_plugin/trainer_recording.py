"""The part of our trainers that writes records: of a step before its checkpoint, of validation as it goes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainer

from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.records import LastingRecords, RecordWriter
from verl_video_tools.verl_plugin.trainer_packing import rollouts_of
from verl_video_tools.verl_plugin.trainer_records import record_lines


class RecordingTrainer(PPOTrainer):
    """Stands before verl's trainer in the list of base classes."""

    def _init_records(self, options: dict[str, Any]) -> None:
        """Takes its own options out of `trainer.video_tools`."""
        records_dir = options.pop("records_dir", None) or Path(self.config.trainer.default_local_dir) / "trajectories"
        self._records = LastingRecords(RecordWriter(Path(records_dir)))
        self._record_tokens = bool(options.pop("record_tokens", False))
        # verl's rows have the engine's log-probabilities only where it was asked for them.
        self._log_probs = ("rollout_log_probs",) if self.config.actor_rollout_ref.rollout.calculate_log_probs else ()
        self._step_lines: list[dict[str, Any]] = []
        self._validation_lines: list[dict[str, Any]] = []

    @cached_property
    def _trajectories(self) -> dict[str, Trajectory]:
        """Records of the step's rollouts by the key of their last sequence: unpacked once, for advantages and lines."""
        return {}

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        batch: KVBatchMeta = super().step(metrics, timing_raw)
        self._step_lines = self._lines(batch, self.global_steps, trained=True)
        self._records.write(self.global_steps, self._step_lines)
        return batch

    def _keep_validation(self, batch: KVBatchMeta) -> None:
        self._validation_lines += self._lines(batch, self.global_steps, trained=False)

    def _lines(self, batch: KVBatchMeta, step: int, trained: bool) -> list[dict[str, Any]]:
        return record_lines(
            rollouts_of(batch),
            batch.partition_id,
            step,
            trained=trained,
            with_tokens=self._record_tokens,
            with_log_probs=bool(self._log_probs),
            trajectories=self._trajectories,
        )
