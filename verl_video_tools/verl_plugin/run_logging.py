"""What a trainer logs and records of its run, so that no failure of it ends the run.

verl's trainer raises whatever a tracker raises: a server of Weights & Biases that is away, or a full disk, ends a run
of days. verl makes the trackers itself and has no registry for them, so registration is not enough. Overridden:

- `logger`, `validation_generations_logger`, `dapo_filtered_reward_logger`: the attributes to which verl assigns what it
  has made. Each backend fails for itself.
- `_write_generations`: the writer of `trainer.rollout_data_dir` and `validation_data_dir`; verl raises its failure in
  the next step.
- `step`: records, and pictures of some rollouts for trackers (`tracked_rollouts`), while TransferQueue holds the step's
  data, and before verl saves its checkpoint: a run that dies after that goes on with the next step.
- `_compute_metrics`: metrics, and alarms on them. A rollout that never reached the engine, whose policy version is -1,
  lags behind no policy; verl would count it as old as the run. Images of trained groups are freed, and what arrives
  late of groups that verl has cleared (`stored_images`).
- `fit`: records of steps that are trained again are set aside before, and there is a last try behind.

A tracker that cannot be set up still ends the run, before its first step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainer
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.tracking import Tracking

from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.best_effort import BestEffort
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.records.records import RecordWriter, archive_stale_records
from verl_video_tools.verl_plugin import tracked_rollouts
from verl_video_tools.verl_plugin.alarms import Alarms
from verl_video_tools.verl_plugin.batching import DroppedRollouts, RolloutRows, batch_row, rollouts_of
from verl_video_tools.verl_plugin.group_router import imbalance
from verl_video_tools.verl_plugin.settings import CACHED_TOKENS, NO_VERSION, SAMPLED_TOKENS, TOKEN_COUNTS, unpack_record
from verl_video_tools.verl_plugin.stored_images import release
from verl_video_tools.verl_plugin.trainer_options import TrainerOptions

_TRACKING_FAILURES, _RECORD_FAILURES = "tracking/failures", "records/failures"
"""Metrics: tries that have failed, of the run so far."""


def lasting_writer(folder: Path) -> BestEffort:
    """`RecordWriter.write` into this folder. Raises OSError if it cannot be made."""
    return BestEffort(RecordWriter(folder).write, f"writing records to {folder}", _RECORD_FAILURES)


class LastingTracking:
    """verl's `Tracking`; all but `log` is its own."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking
        self.lasting = [
            BestEffort(partial(tracking.log, backend=[name]), f"logging to {name}", _TRACKING_FAILURES)
            for name in tracking.logger
        ]

    def log(self, data: dict[str, Any], step: int) -> None:
        for log in self.lasting:
            log(data=data, step=step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracking, name)


class LastingTables:
    """One of verl's loggers of tables, which asks for the names of the backends with each table."""

    def __init__(self, tables: Any) -> None:
        self.lasting = [BestEffort(tables.log, f"logging a table ({type(tables).__name__})", _TRACKING_FAILURES)]

    def log(self, backends: str | Sequence[str], table: Any, step: int) -> None:
        for name in [backends] if isinstance(backends, str) else backends:
            self.lasting[0]([name], table, step)


class _Held:
    """An attribute that holds what is assigned to it in a wrapper."""

    def __init__(self, wrapper: Callable[[Any], Any]) -> None:
        self._wrapper = wrapper

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        try:
            return instance.__dict__[self._name]
        except (AttributeError, KeyError):
            raise AttributeError(self._name) from None

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = self._wrapper(value)


class LoggingMixin(PPOTrainer):
    """See the module's docstring; stands before verl's trainer in the list of base classes."""

    _alarms: Alarms

    logger = _Held(LastingTracking)
    validation_generations_logger = _Held(LastingTables)
    dapo_filtered_reward_logger = _Held(LastingTables)

    def _init_telling(self, options: TrainerOptions) -> None:
        self._records_folder = Path(self.config.trainer.default_local_dir) / "trajectories"
        self._write_records = lasting_writer(self._records_folder)
        self._record_tokens = options.record_tokens
        self._tracked_every = options.tracked_rollouts_every
        # verl's rows have the engine's log-probabilities only where it was asked for them.
        self._log_probs = ("rollout_log_probs",) if self.config.actor_rollout_ref.rollout.calculate_log_probs else ()
        self._step_lines: list[dict[str, Any]] = []
        self._validation_lines: list[dict[str, Any]] = []

    @cached_property
    def _write_generations(self) -> BestEffort:
        return BestEffort(super()._write_generations, "writing generations", _TRACKING_FAILURES)

    def fit(self, agent_loop_manager: Any) -> None:
        self._lasting_set_aside()  # verl has loaded its checkpoint, and nothing is recorded yet
        try:
            super().fit(agent_loop_manager)
        finally:
            for lasting in (*self._trackers(), self._write_records):
                lasting.try_again()

    def _trackers(self) -> list[BestEffort]:
        held = ("logger", "validation_generations_logger", "dapo_filtered_reward_logger")
        loggers = [self.__dict__[name] for name in held if name in self.__dict__]
        own = [self._write_generations, self._track_rollouts, *self._rollout_senders.values()]
        return [lasting for each in loggers for lasting in each.lasting] + own

    # --------------------------------------------------------------------------------------------- metrics and records

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        batch: KVBatchMeta = super().step(metrics, timing_raw)
        self._lasting_record(batch)
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        for tag in batch.tags:
            if tag.get("max_global_steps") == NO_VERSION:
                tag.update(min_global_steps=global_steps - 1, max_global_steps=global_steps - 1)
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._lasting_tell(metrics)
        self._check_alarms(global_steps, metrics)
        metrics.update(release(batch))
        for name, lasting in ((_TRACKING_FAILURES, self._trackers()), (_RECORD_FAILURES, self._recorders())):
            metrics[name] = sum(each.num_failures for each in lasting)

    def _set_aside(self) -> None:
        trainer = self.config.trainer
        if trainer.get("val_only", False) and trainer.get("val_before_train", True):
            return  # a run that only measures a checkpoint, maybe not the last one, abandons nothing
        if moved := archive_stale_records(self._records_folder, self.global_steps):
            num_files, folder = moved
            print(
                f"[verl_video_tools] going on from step {self.global_steps}: records of later steps, which are trained "
                f"again, are set aside ({num_files} files in {folder})",
                flush=True,
            )

    def _record(self, batch: KVBatchMeta) -> None:
        self._step_lines = []  # if this fails, the last step's are not this one's
        self._step_lines = self._lines(batch, self.global_steps, trained=True)
        self._write_records(self.global_steps, self._step_lines)
        if self._tracked_every and self.global_steps % self._tracked_every == 0:
            self._track_rollouts(self.logger.logger, self._step_lines, self.global_steps)

    def _tell(self, metrics: dict) -> None:
        metrics.update(rollout_metrics([Rollout.from_line(line) for line in self._step_lines]))
        if (self.config.algorithm.get("filter_groups") or {}).get("enable"):
            metrics.update(self._dropped.take())
        # Rollouts are routed by the last manager: verl lends the trainer's own servers, if any, to that of the others.
        metrics.update(imbalance(self._rollout_server_managers()[-1].global_load_balancer))

    def _tell_validation(self, batch: KVBatchMeta) -> None:
        self._validation_lines += self._lines(batch, self.global_steps, trained=False)

    @cached_property
    def _dropped(self) -> DroppedRollouts:
        """Made when verl's part of the trainer makes the replay buffer."""
        return DroppedRollouts()

    # None of these can be tried again: later steps are the run's own by then, TransferQueue forgets a batch's rows, and
    # alarms look at a step's own metrics.
    @cached_property
    def _lasting_set_aside(self) -> BestEffort:
        return BestEffort(self._set_aside, "setting aside records of abandoned steps", _RECORD_FAILURES, max_kept=0)

    @cached_property
    def _lasting_record(self) -> BestEffort:
        return BestEffort(self._record, "making records of a step", _RECORD_FAILURES, max_kept=0)

    @cached_property
    def _track_rollouts(self) -> BestEffort:
        track = partial(tracked_rollouts.track, senders=self._rollout_senders)
        return BestEffort(track, "drawing rollouts for trackers", _TRACKING_FAILURES, max_kept=0)

    @cached_property
    def _rollout_senders(self) -> dict[str, BestEffort]:
        """One for each tracker: one that fails keeps no picture from the others."""
        return {
            name: BestEffort(send, f"showing rollouts in {name}", _TRACKING_FAILURES, max_kept=0)
            for name, send in tracked_rollouts.SENDERS.items()
        }

    @cached_property
    def _lasting_tell(self) -> BestEffort:
        return BestEffort(self._tell, "making metrics of a step", _RECORD_FAILURES, max_kept=0)

    @cached_property
    def _check_alarms(self) -> BestEffort:
        return BestEffort(self._alarms.check, "alarms on a step's metrics", _RECORD_FAILURES, max_kept=0)

    @cached_property
    def _keep_validation(self) -> BestEffort:
        return BestEffort(self._tell_validation, "making records of held-out rollouts", _RECORD_FAILURES, max_kept=0)

    @cached_property
    def _trajectories(self) -> dict[str, Trajectory]:
        """Records of the step's rollouts by the key of their last sequence: unpacked once, for advantages and lines."""
        return {}

    def _recorders(self) -> list[BestEffort]:
        return [
            self._write_records,
            self._lasting_set_aside,
            self._lasting_record,
            self._lasting_tell,
            self._keep_validation,
            self._check_alarms,
        ]

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


_ROW_FIELDS = ("extra_fields", "data_source", "reward_model", "extra_info")


class ReplayTap:
    """verl's replay buffer, with a look at its answers. All else is the buffer's.

    Args:
        see_validation: is shown each batch of validation: `_validate` clears them within its own loop, and only the
            buffer's answer passes through the trainer's hands before.
        see_failures: is told of how many groups of a batch rollouts have failed. In synchronous training verl goes on
            with those that are left.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        see_validation: Callable[[KVBatchMeta], None],
        see_failures: Callable[[int], None],
    ) -> None:
        self._buffer, self._see_validation, self._see_failures = buffer, see_validation, see_failures

    def sample(self, *args: Any, partition_id: str, **kwargs: Any) -> Any:
        result = self._buffer.sample(*args, partition_id=partition_id, **kwargs)
        if failed := self._buffer.failure_keys[partition_id]:
            self._see_failures(len(failed))
        if partition_id == "val":
            self._see_validation(result[0])
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)


def record_lines(
    rollouts: Sequence[RolloutRows],
    partition_id: str,
    step: int,
    *,
    trained: bool,
    with_tokens: bool,
    with_log_probs: bool,
    trajectories: Mapping[str, Trajectory] | None = None,
) -> list[dict[str, Any]]:
    """One line per rollout: what is the rollout's from its last row, counts of tokens summed over its sequences.

    `line["trajectory"]` is a `Trajectory`, as in the lines that `records.records.read_records` gives.

    Args:
        trained: the batch has advantages; else those of the lines are None.
        with_tokens: keep the training sequences too.
        with_log_probs: the rows hold the engine's log-probabilities (`rollout.calculate_log_probs`).
        trajectories: records that have been unpacked already, by the key of a rollout's last row.
    """
    token_fields = ["prompts", "response_mask", *(["advantages"] if trained else [])]
    if with_tokens:
        token_fields += ["responses", *(["old_log_probs"] if trained else [])]
        token_fields += ["rollout_log_probs"] if with_log_probs else []
    keys = [key for rollout in rollouts for key in rollout.keys]
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=[*token_fields, *_ROW_FIELDS])
    lines, first = [], 0
    for rollout in rollouts:
        rows = range(first, first + len(rollout.keys))
        first, last = rows.stop, rows[-1]
        extra_fields = batch_row(data["extra_fields"], last)
        trajectory = (trajectories or {}).get(rollout.keys[-1]) or unpack_record(extra_fields)
        counts = [batch_row(data["extra_fields"], i) for i in rows]
        if trained:
            masks = [data["response_mask"][i] for i in rows]
            advantages = [data["advantages"][i][mask.bool()] for i, mask in zip(rows, masks, strict=True) if mask.any()]
            first_advantage = float(advantages[-1][0]) if advantages else 0.0
        line: dict[str, Any] = {
            "step": step,
            "uid": rollout.uid,
            "session_id": rollout.session_id,
            "agent_name": trajectory.method,
            "data_source": batch_row(data["data_source"], last),
            "ground_truth": _ground_truth(batch_row(data["reward_model"], last)),
            "extra_info": _plain(batch_row(data["extra_info"], last)),
            "policy_version": [extra_fields.get("min_global_steps"), extra_fields.get("max_global_steps")],
            "reward": _plain(extra_fields["reward_extra_info"]),
            "advantage": first_advantage if trained else None,
            "num_sequences": len(rows),
            "num_prompt_tokens": sum(len(data["prompts"][i]) for i in rows),
            **{name: sum(count[name] for count in counts) for name in TOKEN_COUNTS},
            **{name: extra_fields.get(name) for name in (CACHED_TOKENS, SAMPLED_TOKENS)},
            "trajectory": trajectory,
        }
        if with_tokens:
            line["sequences"] = [{name: data[name][i].tolist() for name in token_fields} for i in rows]
        lines.append(line)
    return lines


def _ground_truth(reward_model: Any) -> Any:
    """None for a row without one, whose rollouts the loop has flagged."""
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def _plain(value: Any) -> Any:
    """numpy's and torch's values as Python's, recursively."""
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
