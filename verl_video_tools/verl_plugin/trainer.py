"""The trainer port: three of verl's V1 trainers, whose methods become events of plain classes of this package.

`video_tools`, `video_tools_colocate_async` and `video_tools_separate_async` are the modes `sync`, `colocate_async` and
`separate_async` of verl. All add the same, which stands in `VideoToolsMixin`. verl logs nothing of a rollout's
`extra_fields` in training and has no hook between reward and advantage, so registration alone is not enough.

| event | method of verl | calls |
|---|---|---|
| a batch is sampled | `_balance_batch` | `batching`: padding and equal lengths, with which verl's worker would crash |
| rewards are known | `_compute_advantage`, before | `UpdateFilter.rewards_known`: flagged rollouts train nothing |
| advantages are known | `_compute_advantage`, after | `UpdateFilter.advantages_known`: equal rewards teach nothing |
| before the update | `_update_actor` | skipped where there is nothing to train on |
| a step is done, its data still there | `step`, `_compute_metrics` | `RunLogging`: records, metrics, alarms |
| a checkpoint is saved or loaded | `_save_checkpoint`, `_load_checkpoint` | `checkpoints` |

Each other override has its reason beside it.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray.exceptions import RayActorError
from torch.utils.data import DataLoader, Subset
from verl.trainer.ppo.v1 import (
    PPOTrainer,
    PPOTrainerColocateAsync,
    PPOTrainerSeparateAsync,
    PPOTrainerSync,
    register_trainer,
)
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer, ReplayBufferAsync

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.files import share_weights
from verl_video_tools.records.best_effort import BestEffort
from verl_video_tools.verl_plugin.alarms import JudgeWatch
from verl_video_tools.verl_plugin.batching import (
    DroppedRollouts,
    UpdateFilter,
    deal_padding,
    lengthen_equal,
    shared_values,
)
from verl_video_tools.verl_plugin.checkpoints import name_whole_checkpoint, remove_old_checkpoints
from verl_video_tools.verl_plugin.queue import KVBatchMeta, queue_controller, storage_units
from verl_video_tools.verl_plugin.run_checks import check_batch, check_datasets, check_run_options
from verl_video_tools.verl_plugin.run_logging import (
    TRACKING_FAILURES,
    BestEffortTables,
    BestEffortTracking,
    RunLogging,
)
from verl_video_tools.verl_plugin.settings import (
    NO_VERSION,
    describe_run,
    end_with_epochs,
    honour_freeze_vision_tower,
    judge_config,
    set_defaults,
    trainer_options,
)
from verl_video_tools.verl_plugin.watchdog import ActorCheck, ServerCheck, Watchdog, watched_actors

_GENERATING, _MEASURING = "generating rollouts", "measuring held-out rows"
_PARTITIONS = {_GENERATING: ("train", "groups"), _MEASURING: ("val", "rows")}
"""What the replay buffer counts during a phase: its partition, and the name of what is counted."""
STOP_FILE = "stop_requested"
"""A file of this name beside the checkpoints asks a run to save one at the end of its step and to stop."""


class _Stopped(Exception):
    """The run was asked to stop, and has saved its checkpoint."""


class GuardedLogger:
    """An attribute to which verl assigns a logger, for which it has no registry. It is held in a wrapper."""

    def __init__(self, wrapper: Callable[[Any], Any]) -> None:
        self._wrapper = wrapper

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = guarded = self._wrapper(value)
        instance._logging.trackers += guarded.calls


def first_rows(loader: DataLoader, num_rows: int) -> DataLoader:
    """A loader of the first `num_rows` rows of another's data set, in their order; of all, if there are no more.

    It is of the other's class: verl's loaders have a state.
    """
    rows = Subset(loader.dataset, range(min(num_rows, len(loader.dataset))))
    return type(loader)(
        rows,
        batch_size=min(loader.batch_size or 1, len(rows)),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
    )


# ------------------------------------------------------------------------------------------------------- replay buffers


class ValidSiblings(ReplayBuffer):
    """Compares the valid rollouts of a group only (`batching.shared_values`); verl's option for a buffer of one's own
    (`custom_sampler`) keeps the metric and the batch size from it. Stands before verl's buffer of another mode in the
    list of base classes.

    Args:
        see: is shown the keys of compared rollouts with the breakdown of their rewards.
        dropped: counts those of dropped groups.
    """

    def __init__(
        self, *args: Any, see: Callable[[str, Mapping[str, Any]], None], dropped: DroppedRollouts, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._see, self._dropped = see, dropped

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter]:
        compared_before = set(self._dapo_classification_cache[partition_id])
        filtered: tuple[set[str], Counter] = super()._dapo_filtered_keys(partition_id)
        # Group -> the value that its rollouts share, None where they differ: verl asks once per group, and so do we.
        shared: dict[str, float | None] = self._dapo_classification_cache[partition_id]
        if not (finished := shared.keys() - compared_before):
            return filtered
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in finished]
        metric = None if self.filter_groups_metric == FILTER_GROUPS_REWARD_METRIC else self.filter_groups_metric
        shared.update(dict.fromkeys(finished, 0.0))  # a group without a row teaches nothing
        shared.update(shared_values(keys, partition_id, metric, self._see, self._dropped))
        equal = {uid: value for uid, value in shared.items() if value is not None}
        return set(equal), Counter(equal.values())


class ValidSiblingsAsync(ValidSiblings, ReplayBufferAsync):
    """Of asynchronous training."""


_WITH_VALID_SIBLINGS: dict[type, type[ValidSiblings]] = {
    ReplayBuffer: ValidSiblings,
    ReplayBufferAsync: ValidSiblingsAsync,
}


class ReplayTap:
    """verl's replay buffer, with a look at its answers. All else is the buffer's.

    Args:
        see_validation: is shown each batch of validation: verl clears them within its own loop.
        see_failures: is given the number of groups of a batch whose rollouts have failed. In synchronous training verl
            goes on with those that are left.
    """

    def __init__(
        self,
        buffer: Any,
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


# ------------------------------------------------------------------------------------------------------------- trainers


class VideoToolsMixin(PPOTrainer):
    """What every registered trainer adds; stands before verl's trainer of a mode in the list of base classes.

    Options under `video_tools.trainer`: `settings.TrainerOptions`.
    """

    logger: Any = GuardedLogger(BestEffortTracking)
    validation_generations_logger = GuardedLogger(BestEffortTables)
    dapo_filtered_reward_logger = GuardedLogger(BestEffortTables)
    replay_buffer: Any
    val_dataloader: Any
    verl_mode: ClassVar[str]
    """verl's own name of the mode."""

    def __init__(self, config: Any) -> None:
        check_run_options(config)  # wrong options end the run before any worker starts
        self._options = trainer_options(config)
        honour_freeze_vision_tower(config)
        set_defaults(config)  # verl makes agent loop workers and router after its trainer
        self._judge_watch = JudgeWatch(judge_config(config))
        self._logging = RunLogging(config, self._options, self._router_metrics)
        self._updates = UpdateFilter(config.algorithm, self._judge_watch)
        # verl raises a failure of this in the next step.
        self._write_generations = BestEffort(super()._write_generations, "writing generations", TRACKING_FAILURES)
        self._logging.trackers.append(self._write_generations)
        super().__init__(config)
        self._actors = ActorCheck(self._options.watchdog_grace_seconds)
        self._actors.add("storage unit", storage_units(config.transfer_queue.backend))
        if self._options.poll_interval_seconds:
            self.replay_buffer.poll_interval = self._options.poll_interval_seconds
        self.replay_buffer = ReplayTap(
            self.replay_buffer,
            lambda batch: self._logging.record_validation(batch, self.global_steps),
            self._explain_failures,
        )
        self._num_refilled = 0
        self._stop_file, self._saved_step = Path(config.trainer.default_local_dir) / STOP_FILE, -1
        self._phase, self._phase_started = "starting", time.monotonic()
        self._watchdog: Watchdog | None = None

    # ------------------------------------------------------------------------------------------------- before training

    @property
    def trainer_mode(self) -> str:
        """verl compares it with its own names to choose replay buffer and batch size, and looks its options up by it
        (`trainer.v1.<mode>`), so it must not be the registered one."""
        return self.verl_mode

    @trainer_mode.setter
    def trainer_mode(self, registered_name: str) -> None:
        """verl's constructor sets the registered name, which must not show."""

    def _build_replay_buffer(self) -> ReplayBuffer:
        """Stays verl's where groups are not filtered, and where the user has chosen another class
        (`trainer.v1.sampler.custom_sampler`), whose filter is its own."""
        buffer = super()._build_replay_buffer()
        kind = _WITH_VALID_SIBLINGS.get(type(buffer))
        if kind is None or buffer.filter_groups_metric is None:
            return buffer
        # verl keeps each argument under its name.
        arguments = {name: getattr(buffer, name) for name in inspect.signature(type(buffer)).parameters}
        return kind(see=self._judge_watch.see, dropped=self._logging.dropped, **arguments)

    def _init_dataloader(self) -> None:
        """Reports wrong rows before workers start, instead of from inside each of them."""
        super()._init_dataloader()
        check_datasets(self.train_dataset, self.val_dataset, self.config, self.processor)
        check_batch(len(self.train_dataset), self.config.data.train_batch_size)
        if (last := end_with_epochs(self.config.trainer, self.steps_per_epoch)) is not None:
            self.total_training_steps = last
            self.config.actor_rollout_ref.actor.optim.total_training_steps = last * self.parameter_sync_step

    def on_init_end(self) -> None:
        """Starts the watchdog, since the first weight update can already hang."""
        describe_run(self.config, self.config.actor_rollout_ref.rollout)
        self._enter("sending the first weights to the engine")
        replicas = [replica for manager in self._rollout_server_managers() for replica in manager.get_replicas()]
        self._actors.add("TransferQueue controller", queue_controller())
        for kind, handles in watched_actors(self).items():
            self._actors.add(kind, handles)
        grace_seconds = self._options.watchdog_grace_seconds
        servers = ServerCheck([replica._server_address for replica in replicas], grace_seconds)
        self._watchdog = Watchdog([servers, self._actors], self._progress, grace_seconds)
        self._watchdog.start()
        super().on_init_end()

    def fit(self, agent_loop_manager: Any) -> None:
        # Another manager than verl's need not have them (rollout.agent.agent_loop_manager_class).
        self._actors.add("agent loop worker", getattr(agent_loop_manager, "agent_loop_workers", []))
        self._actors.announce()
        try:
            self._fit_logged(agent_loop_manager)
        except _Stopped:
            self._shutdown_dump_executor()
            print(
                f"[verl_video_tools] stopped after step {self._saved_step}, whose checkpoint is saved. Start the same "
                "command again to resume.",
                flush=True,
            )
        except Exception as error:
            # Of a dead actor Ray may say no more than that a connection broke, and of a dead engine verl no more than
            # that there are no rollouts: the watchdog names it, and its node. An error of our own says what is wrong.
            if self._watchdog is not None and not isinstance(error, VideoToolsError):
                self._watchdog.wait_for_verdict(is_lost=isinstance(error, RayActorError))
            raise
        finally:
            self._stop_file.unlink(missing_ok=True)
            if self._watchdog is not None:
                self._watchdog.stop()

    def _fit_logged(self, agent_loop_manager: Any) -> None:
        self._logging.archive_stale_records(self.global_steps)  # verl has loaded its checkpoint, nothing is recorded
        try:
            super().fit(agent_loop_manager)
        finally:
            self._logging.run_ended()

    def _explain_failures(self, num_groups: int) -> None:
        """Do not train on what is left of a step because the engine died in it; report a failure of another kind."""
        if self._watchdog is not None:
            self._watchdog.wait_for_verdict()
        print(
            f"[verl_video_tools] step {self.global_steps}: rollouts of {num_groups} groups have failed (errors stand "
            "above), and are left out",
            flush=True,
        )

    # -------------------------------------------------------------------------------------------------------- progress

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        self._enter(_GENERATING)
        self._updates.skips_update = False
        if self.local_trigger_step == 0:  # a step may consist of several updates (`parameter_sync_step`)
            self._num_refilled = 0
            self._updates.begin_step()
        return super()._step_once(metrics, timing_raw, sample_batch_size)

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        """With dynamic sampling verl replaces groups of equal rewards without end, also where every rollout fails, and
        where no judge answers."""
        filter_groups = self.config.algorithm.get("filter_groups") or {}
        if filter_groups.get("enable") and self._phase == _GENERATING:
            batch_size, limit = self.config.data.train_batch_size, self._options.max_refill_batches
            self._num_refilled += num_prompts
            self._judge_watch.check_refills(self.global_steps, self._num_refilled // batch_size)
            if self._num_refilled > limit * batch_size:
                raise VideoToolsError(
                    f"step {self.global_steps}: {limit} batches of {batch_size} questions did not replace the groups "
                    "whose rewards are equal. Either rollouts fail (this log has the errors of rows, videos or judge), "
                    "or the policy is always right or always wrong. Correct the data, or raise "
                    "video_tools.trainer.max_refill_batches"
                )
        added: int = super()._add_prompts_to_generate(num_prompts)
        return added

    def on_sample_end(self) -> None:
        super().on_sample_end()
        self._enter("updating the policy")

    def on_step_begin(self) -> None:
        """Ends a run between two steps, when checkpoint and metrics of the last one are written. A trainer in a Ray
        actor gets no signal, so a file asks it to stop."""
        self._logging.alarms.raise_if_stopped()
        if self._saved_step == self.global_steps - 1 and self._stop_file.exists():
            raise _Stopped
        super().on_step_begin()

    def on_step_end(self) -> None:
        if self._saved_step != self.global_steps and self._stop_file.exists():
            self._save_checkpoint()
        self._enter("sending the new weights to the engine")
        super().on_step_end()

    def _enter(self, phase: str) -> None:
        self._phase, self._phase_started = phase, time.monotonic()

    def _progress(self) -> str:
        seconds = time.monotonic() - self._phase_started
        step = getattr(self, "global_steps", 0)
        line = f"step {step}/{self.total_training_steps}: {self._phase} for {seconds:.0f} s"
        if self._phase in _PARTITIONS:
            buffer, (partition_id, counted) = self.replay_buffer, _PARTITIONS[self._phase]
            running = len(buffer.pending_keys[partition_id]) + len(buffer.running_keys[partition_id])
            line += f", {len(buffer.finished_keys[partition_id])} {counted} finished, {running} running"
        return line

    # ----------------------------------------------------------------------------------------------------- checkpoints

    def _load_checkpoint(self) -> None:
        if self.config.trainer.resume_mode == "auto":
            last_written = "data.pt" if self.verl_mode == "sync" else "transfer_queue"
            name_whole_checkpoint(Path(self.config.trainer.default_local_dir), last_written)
        super()._load_checkpoint()

    def _save_checkpoint(self) -> None:
        self._enter("saving a checkpoint")
        super()._save_checkpoint()
        share_weights(Path(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}"))
        self._saved_step = self.global_steps
        if (max_checkpoints := self.config.trainer.max_actor_ckpt_to_keep or 0) > 0:
            remove_old_checkpoints(Path(self.config.trainer.default_local_dir), max_checkpoints)

    # ---------------------------------------------------------------------------------------------------------- a step

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> KVBatchMeta:
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        num_ranks, sequences_per_mini_batch = self._layout()
        if len(batch.keys) // num_ranks < 2:
            raise UsageError(
                f"{len(batch.keys)} sequences for {num_ranks} training ranks: each rank needs at least two, as verl "
                "0.9.1 cannot update on a single multimodal sequence; raise data.train_batch_size or rollout.n"
            )
        deal_padding(batch, num_ranks, sequences_per_mini_batch)
        has_log_probs = self.config.actor_rollout_ref.rollout.calculate_log_probs
        log_probs = ("rollout_log_probs",) if has_log_probs else ()
        lengthen_equal(batch, num_ranks, self.tokenizer.pad_token_id, log_probs)
        return batch

    def _layout(self) -> tuple[int, int]:
        """Training ranks, and sequences of a mini-batch over all of them."""
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        return max(self.actor_rollout_wg._dispatch_info["actor"]) + 1, actor.ppo_mini_batch_size * rollout.n

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        is_last_update = self.local_trigger_step == self.parameter_sync_step - 1
        if not self._updates.rewards_known(batch, self.global_steps, is_last_update, *self._layout()):
            return batch
        result = super()._compute_advantage(batch, metrics)
        self._updates.advantages_known(batch)
        return result

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        return batch if self._updates.skips_update else super()._update_actor(batch, metrics)

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        batch: KVBatchMeta = super().step(metrics, timing_raw)
        self._logging.record_step(batch, self.global_steps, self.logger.logger, self._updates.trajectories)
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        for tag in batch.tags:
            # A rollout that never reached the engine lags behind no policy; verl would count it as old as the run.
            if tag.get("max_global_steps") == NO_VERSION:
                tag.update(min_global_steps=global_steps - 1, max_global_steps=global_steps - 1)
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._logging.step_measured(batch, metrics, global_steps)

    def _router_metrics(self) -> dict[str, float]:
        """`router/max_over_mean`: rollouts on the busiest server since the last step, over the mean of all. A router
        that is not ours has no such metric."""
        # Rollouts are routed by the last manager: verl lends the trainer's own servers, if any, to that of the others.
        router = self._rollout_server_managers()[-1].global_load_balancer
        if not hasattr(router, "take_imbalance"):
            return {}
        return {"router/max_over_mean": ray.get(router.take_imbalance.remote())}

    def _validate(self) -> dict[str, float]:
        """Measures only some rows between the first step and the last where the run asks for that (verl measures all of
        them every time). A failed judge ends the run where it is to do so."""
        self._enter(_MEASURING)
        self._logging.validation_begun()
        every_row, num_rows = self.val_dataloader, self._options.interim_validation_rows
        is_between = 0 < self.global_steps < self.total_training_steps
        if num_rows and is_between and not self.config.trainer.get("val_only", False):
            self.val_dataloader = first_rows(every_row, num_rows)
        try:
            metrics: dict[str, float] = super()._validate()
        finally:
            self.val_dataloader = every_row
        self._logging.validation_ended(self.global_steps)
        num_failures = sum(value > 0 for name, value in metrics.items() if "/judge_failed/mean" in name)
        self._judge_watch.check_failures(self.global_steps, num_failures)
        return metrics


@register_trainer("video_tools")
class VideoToolsTrainer(VideoToolsMixin, PPOTrainerSync):
    """A step generates its batch, then trains on all of it."""

    verl_mode = "sync"


@register_trainer("video_tools_colocate_async")
class VideoToolsColocateAsyncTrainer(VideoToolsMixin, PPOTrainerColocateAsync):
    """A step trains on the groups that finish first; the others are interrupted and go on under the next policy."""

    verl_mode = "colocate_async"


@register_trainer("video_tools_separate_async")
class VideoToolsSeparateAsyncTrainer(VideoToolsMixin, PPOTrainerSeparateAsync):
    """Engine and trainer have devices of their own, and neither waits for the other's step to end."""

    verl_mode = "separate_async"

    def _setup(self) -> None:
        if not self._enable_hybrid_replicas:
            # verl 0.9.1 then logs a line at this point with an argument that no logger takes, and the run ends with a
            # TypeError, unless the line's level is not logged.
            logging.getLogger(PPOTrainerSeparateAsync.__module__).setLevel(logging.WARNING)
        super()._setup()
