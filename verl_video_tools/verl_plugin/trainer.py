"""The registered trainers: two of verl's V1 trainers plus metrics, records and the masking of rollouts.

`video_tools` is verl's mode `sync`, `video_tools_colocate_async` its mode `colocate_async`. Both add the same, which
stands in `VideoToolsMixin`: verl's V1 trainers log nothing of a rollout's `extra_fields` in training and have no hook
between reward and advantage, so registration alone is not enough. Overridden, each beside its reason:

- `__init__`: our agent loop workers and router, unless others are configured (`settings.set_defaults`); verl makes both
  after its trainer. Its option `freeze_vision_tower`, which verl tells no engine (`engine`). The replay buffer's
  polling, and a look at what it hands out (`run_logging.ReplayTap`): verl has options for neither. Where rollouts
  of a step have failed because something died, the run ends before it trains on the others.
- `_build_replay_buffer`: with dynamic sampling, one that compares the valid rollouts of a group only
  (`batching`); verl's option for a buffer of one's own (`custom_sampler`) keeps the metric and the batch size
  from it.
- `_init_dataloader`: an unknown `agent_name` is reported before workers start, instead of from inside each of them. A
  run whose epochs are over early has a last step, too (`settings.end_with_epochs`).
- `on_init_end`, `fit`: start and stop the watchdog; the first weight update can already hang. An error is left to the
  watchdog for a while, which names what is dead, and its node.
- `_step_once`, `on_sample_end`: remember what the step is doing, for the progress line.
- `_balance_batch`: a batch of equally long sequences would crash verl's worker (see `batching.lengthen`), and so
  would rows of padding, with which verl fills a batch of rollouts of several sequences (see `complete_padding`).
- `_add_prompts_to_generate`: with dynamic sampling verl replaces groups of equal rewards without end, also where every
  rollout fails, and where no judge answers.
- `_validate`: records; a judge that failed ends the run where it is to do so. Only some rows in the course of training
  where the run asks for that: verl measures all of them every time.
- `_compute_advantage`: flagged rollouts neither train nor move their group's mean; equal rewards teach nothing; a judge
  that gives no verdict for some steps ends the run; rollouts that share turns have two advantages; a rejected last
  sequence takes no advantage from those before it.
- `_update_actor`: an update without any verdict, or without any rollout that succeeded, leaves the policy alone; verl
  would still add KL, momentum and decay.
- `_load_checkpoint`: a run that was killed while verl named its checkpoint resumes all the same (`checkpoints`).
- `_save_checkpoint`: checkpoints of an earlier start go, too; verl knows those of this one alone.
- `step`, `_compute_metrics`: records, metrics and alarms of a step (`run_logging`). A rollout that never reached the
  engine, whose policy version is -1, lags behind no policy; verl would count it as old as the run.
- `logger`, `validation_generations_logger`, `dapo_filtered_reward_logger`: the attributes to which verl assigns what it
  has made, and for which it has no registry. `_write_generations` writes `trainer.rollout_data_dir` and
  `validation_data_dir`; verl raises its failure in the next step.
- `on_step_begin`: an alarm that is to stop the run does so when the last step's checkpoint and metrics are written, and
  so does a stop file (`STOP_FILE`): a trainer in a Ray actor gets no signal. `on_step_end` saves its checkpoint first.
- `trainer_mode`: verl compares it with its own names, so it must not be the registered one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
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
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.machine import page
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.records.best_effort import BestEffort
from verl_video_tools.verl_plugin.alarms import JudgeWatch
from verl_video_tools.verl_plugin.batching import (
    correct_by_group,
    deal_masked,
    deal_padding,
    exclude,
    keys_of,
    lengthen_equal,
    rollouts_of,
    scored,
    with_valid_siblings,
    write_no_advantages,
)
from verl_video_tools.verl_plugin.checkpoints import name_whole_checkpoint, remove_old_checkpoints
from verl_video_tools.verl_plugin.queue import KVBatchMeta, queue_controller, storage_units
from verl_video_tools.verl_plugin.run_checks import check_batch, check_datasets, check_run_options
from verl_video_tools.verl_plugin.run_logging import (
    TRACKING_FAILURES,
    BestEffortTables,
    BestEffortTracking,
    ReplayTap,
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
from verl_video_tools.verl_plugin.watchdog import (
    ActorCheck,
    ServerCheck,
    Watchdog,
    watched_actors,
)

# ------------------------------------------------------------------------------------------------------ validation rows


@contextmanager
def fewer_rows(trainer: Any, num_rows: int) -> Iterator[None]:
    """Within it, a trainer of verl that is between its first step and its last validates on `num_rows` rows. One that
    only measures a checkpoint (`trainer.val_only`) validates on all.

    Args:
        num_rows: the first of its validation rows; 0 are all.
    """
    is_between = 0 < trainer.global_steps < trainer.total_training_steps
    if not num_rows or not is_between or trainer.config.trainer.get("val_only", False):
        yield
        return
    every_row = trainer.val_dataloader
    trainer.val_dataloader = first_rows(every_row, num_rows)
    try:
        yield
    finally:
        trainer.val_dataloader = every_row


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


logger = logging.getLogger(__name__)

_GENERATING, _MEASURING = "generating rollouts", "measuring held-out rows"
_PARTITIONS = {_GENERATING: ("train", "groups"), _MEASURING: ("val", "rows")}
"""What the replay buffer counts during a phase: its partition, and the name of what is counted."""
_GROUP_RELATIVE = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo")
"""Estimators of verl in which a rollout's advantage is its reward less what the others of its group have earned."""
STOP_FILE = "stop_requested"
"""A file of this name beside the checkpoints asks a run to save one at the end of its step and to stop."""


class _Stopped(Exception):
    """The run was asked to stop, and has saved its checkpoint."""


class WrappedAttribute:
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


class VideoToolsMixin(RunLogging, PPOTrainer):
    """What every registered trainer adds; stands before verl's trainer of a mode in the list of base classes.

    Options under `video_tools.trainer`: `settings.TrainerOptions`.
    """

    logger = WrappedAttribute(BestEffortTracking)
    validation_generations_logger = WrappedAttribute(BestEffortTables)
    dapo_filtered_reward_logger = WrappedAttribute(BestEffortTables)
    replay_buffer: Any
    verl_mode: ClassVar[str]
    """verl's own name of the mode."""

    def __init__(self, config: Any) -> None:
        check_run_options(config)  # wrong options are told before any worker starts
        options = trainer_options(config)
        honour_freeze_vision_tower(config)
        set_defaults(config)
        super().__init__(config)
        self._init_logging(options)
        self._watchdog_grace_seconds = options.watchdog_grace_seconds
        self._actors = ActorCheck(self._watchdog_grace_seconds)
        self._actors.add("storage unit", storage_units(config.transfer_queue.backend))
        if options.poll_interval_seconds:
            self.replay_buffer.poll_interval = options.poll_interval_seconds
        self.replay_buffer = ReplayTap(self.replay_buffer, self._keep_validation, self._explain_failures)
        self._max_refill_batches = options.max_refill_batches
        self._num_interim_rows = options.interim_validation_rows
        self._alarms = options.make_alarms()
        self._num_refilled, self._skips_update, self._any_valid = 0, False, False
        self._stop_file, self._saved_step = Path(config.trainer.default_local_dir) / STOP_FILE, -1
        self._phase, self._phase_started = "starting", time.monotonic()
        self._watchdog: Watchdog | None = None

    # ------------------------------------------------------------------------------------------------- before training

    @property
    def trainer_mode(self) -> str:
        """verl compares it with "sync" to choose replay buffer and batch size, and looks its options up by it
        (`trainer.v1.<mode>`)."""
        return self.verl_mode

    @trainer_mode.setter
    def trainer_mode(self, registered_name: str) -> None:
        """verl's constructor sets the registered name, which must not show."""

    @cached_property
    def _judge_watch(self) -> JudgeWatch:
        """Made when verl's part of the trainer makes the replay buffer."""
        return JudgeWatch(judge_config(self.config))

    def _build_replay_buffer(self) -> ReplayBuffer:
        return with_valid_siblings(super()._build_replay_buffer(), self._judge_watch.see, self._dropped)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        check_datasets(self.train_dataset, self.val_dataset, self.config, self.processor)
        check_batch(len(self.train_dataset), self.config.data.train_batch_size)
        if (last := end_with_epochs(self.config.trainer, self.steps_per_epoch)) is not None:
            self.total_training_steps = last
            self.config.actor_rollout_ref.actor.optim.total_training_steps = last * self.parameter_sync_step

    def on_init_end(self) -> None:
        describe_run(self.config, self.config.actor_rollout_ref.rollout)
        self._enter("sending the first weights to the engine")
        replicas = [replica for manager in self._rollout_server_managers() for replica in manager.get_replicas()]
        self._actors.add("TransferQueue controller", queue_controller())
        for kind, handles in watched_actors(self).items():
            self._actors.add(kind, handles)
        addresses = [replica._server_address for replica in replicas]
        self._servers = ServerCheck(addresses, self._watchdog_grace_seconds)
        self._watchdog = Watchdog([self._servers, self._actors], progress=self._progress)
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
            self._wait_for_cause(error)
            raise
        finally:
            self._stop_file.unlink(missing_ok=True)
            if self._watchdog is not None:
                self._watchdog.stop()

    def _fit_logged(self, agent_loop_manager: Any) -> None:
        self._archive_stale_records()  # verl has loaded its checkpoint, and nothing is recorded yet
        try:
            super().fit(agent_loop_manager)
        finally:
            self._try_calls_again()

    def _wait_for_cause(self, error: Exception) -> None:
        """Let the watchdog find what is dead, and end the process with a message that names it.

        Of a dead actor Ray may say no more than that a connection broke, and of a dead engine verl no more than that
        there are no rollouts. An error of our own says what is wrong.
        """
        if self._watchdog is None or isinstance(error, VideoToolsError):
            return
        self._wait_for_verdict(self._watchdog, is_lost=isinstance(error, RayActorError))

    def _explain_failures(self, num_groups: int) -> None:
        """Not train on what is left of a step because the engine died in it; a failure of another kind is told."""
        if self._watchdog is not None:
            self._wait_for_verdict(self._watchdog)
        print(
            f"[verl_video_tools] step {self.global_steps}: rollouts of {num_groups} groups have failed (errors stand "
            "above), and are left out",
            flush=True,
        )

    def _wait_for_verdict(self, watchdog: Watchdog, is_lost: bool = False) -> None:
        """Until the watchdog has ended the process, or found nothing dead that could be the cause."""
        watchdog.wait_for_round()
        if is_lost or self._servers.any_unhealthy() or self._actors.any_lost():
            watchdog.join(self._watchdog_grace_seconds)
            watchdog.wait_for_round()

    # -------------------------------------------------------------------------------------------------------- progress

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        self._enter(_GENERATING)
        self._skips_update = False
        if self.local_trigger_step == 0:  # a step may consist of several updates (`parameter_sync_step`)
            self._num_refilled, self._any_valid = 0, False
            self._judge_watch.begin_step()
        return super()._step_once(metrics, timing_raw, sample_batch_size)

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        filter_groups = self.config.algorithm.get("filter_groups") or {}
        if filter_groups.get("enable") and self._phase == _GENERATING:
            batch_size = self.config.data.train_batch_size
            self._num_refilled += num_prompts
            self._judge_watch.check_refills(self.global_steps, self._num_refilled // batch_size)
            if self._num_refilled > self._max_refill_batches * batch_size:
                raise VideoToolsError(
                    f"step {self.global_steps}: {self._max_refill_batches} batches of {batch_size} questions did not "
                    "replace those whose rollouts all earned the same. Either rollouts fail (errors of rows, videos or "
                    "judge stand above in this log), or the policy is always right, or never. Correct the data, or "
                    "allow more with video_tools.trainer.max_refill_batches"
                )
        added: int = super()._add_prompts_to_generate(num_prompts)
        return added

    def on_sample_end(self) -> None:
        super().on_sample_end()
        self._enter("updating the policy")

    def _load_checkpoint(self) -> None:
        if self.config.trainer.resume_mode == "auto":
            last_written = "data.pt" if self.verl_mode == "sync" else "transfer_queue"
            name_whole_checkpoint(Path(self.config.trainer.default_local_dir), last_written)
        super()._load_checkpoint()

    def _save_checkpoint(self) -> None:
        self._enter("saving a checkpoint")
        super()._save_checkpoint()
        self._saved_step = self.global_steps
        if (num_kept := self.config.trainer.max_actor_ckpt_to_keep or 0) > 0:
            remove_old_checkpoints(Path(self.config.trainer.default_local_dir), num_kept)

    def on_step_begin(self) -> None:
        self._alarms.stop_if_asked()
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

    # --------------------------------------------------------------------------------------------------------- lengths

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> KVBatchMeta:
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        num_ranks, sequences_per_mini_batch = self._layout()
        if len(batch.keys) // num_ranks < 2:
            raise UsageError(
                f"{len(batch.keys)} sequences for {num_ranks} training ranks: each rank needs at least two, as verl "
                "0.9.1 cannot update on a single multimodal sequence; raise data.train_batch_size or rollout.n"
            )
        deal_padding(batch, num_ranks, sequences_per_mini_batch)
        lengthen_equal(batch, num_ranks, self.tokenizer.pad_token_id, self._log_probs)
        return batch

    def _layout(self) -> tuple[int, int]:
        """Training ranks, and sequences of a mini-batch over all of them."""
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        return max(self.actor_rollout_wg._dispatch_info["actor"]) + 1, actor.ppo_mini_batch_size * rollout.n

    # ------------------------------------------------------------------------------------------------------ advantages

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        rollouts = rollouts_of(batch)
        estimator = self.config.algorithm.adv_estimator
        if estimator != "grpo" and any(len(rollout.keys) > 1 for rollout in rollouts):
            raise UsageError(
                f"algorithm.adv_estimator={estimator} would take each sequence of a rollout for a rollout of its own; "
                f"verl 0.9.1 knows better for grpo alone. Set that, or the context policy append ({page('training')})"
            )
        keys = [rollout.keys[-1] for rollout in rollouts]
        trajectories, reward_infos = scored(keys, batch.partition_id)
        self._trajectories.clear()
        self._trajectories.update(zip(keys, trajectories, strict=True))
        for key, info in zip(keys, reward_infos, strict=True):
            self._judge_watch.see(key, info)
        self._judge_watch.check_failures(self.global_steps)
        num_unjudged = sum(JUDGE_FLAG in trajectory.flags for trajectory in trajectories)
        is_last_update = self.local_trigger_step == self.parameter_sync_step - 1
        if is_last_update:
            self._judge_watch.end_step(self.global_steps)
        valid = [not trajectory.flags for trajectory in trajectories]
        self._any_valid |= any(valid)
        if not any(valid):
            if num_unjudged or self._any_valid or not is_last_update:
                # A judge may come back, and other updates of the step may have rollouts: those that fail are the first
                # to finish. Masks stay as they are: verl's metrics are no numbers without a token, and its correction
                # of log-probabilities, which comes with its advantages, raises.
                what = "be judged" if num_unjudged else "be trained on"
                logger.warning("step %s: no rollout could %s; the policy stays as it is", self.global_steps, what)
                write_no_advantages(batch, self.config.algorithm.use_kl_in_reward)
                self._skips_update = True
                return batch
            errors = Counter(str(trajectory.error) for trajectory in trajectories)
            raise VideoToolsError(
                f"step {self.global_steps}: all {len(rollouts)} rollouts failed, nothing is left to train on. "
                f"Most common reason ({errors.most_common(1)[0][1]} times): {errors.most_common(1)[0][0]}"
            )
        kept = [rollout for rollout, is_valid in zip(rollouts, valid, strict=True) if is_valid]
        if len(kept) < len(rollouts):
            flagged = [rollout for rollout, is_valid in zip(rollouts, valid, strict=True) if not is_valid]
            exclude(flagged, batch.partition_id)
            if not deal_masked(batch, frozenset(keys_of(flagged)), *self._layout()):
                few = "step %s: %d valid rollouts do not fill a mini-batch each; the policy stays as it is"
                logger.warning(few, self.global_steps, len(kept))
                self._skips_update = True
        result = super()._compute_advantage(batch, metrics)
        if estimator in _GROUP_RELATIVE:
            correct_by_group(kept, self.config.algorithm, batch.partition_id)
        return result

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        return batch if self._skips_update else super()._update_actor(batch, metrics)

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        batch: KVBatchMeta = super().step(metrics, timing_raw)
        self._record_step(batch)
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        for tag in batch.tags:
            if tag.get("max_global_steps") == NO_VERSION:
                tag.update(min_global_steps=global_steps - 1, max_global_steps=global_steps - 1)
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._step_measured(batch, metrics, global_steps)

    def _trackers(self) -> list[BestEffort]:
        wrapped = ("logger", "validation_generations_logger", "dapo_filtered_reward_logger")
        loggers = [self.__dict__[name] for name in wrapped if name in self.__dict__]
        calls = [call for each in loggers for call in each.calls]
        return [*calls, self._write_generations, *super()._trackers()]

    def _router_metrics(self) -> dict[str, float]:
        """`router/max_over_mean`: rollouts on the busiest server since the last step, over the mean of all. A router
        that is not ours has no such metric."""
        # Rollouts are routed by the last manager: verl lends the trainer's own servers, if any, to that of the others.
        router = self._rollout_server_managers()[-1].global_load_balancer
        if not hasattr(router, "take_imbalance"):
            return {}
        return {"router/max_over_mean": ray.get(router.take_imbalance.remote())}

    @cached_property
    def _write_generations(self) -> BestEffort:
        return BestEffort(super()._write_generations, "writing generations", TRACKING_FAILURES)

    def _validate(self) -> dict[str, float]:
        self._enter(_MEASURING)
        self._validation_lines.clear()
        with fewer_rows(self, self._num_interim_rows):
            metrics: dict[str, float] = super()._validate()
        self._write_records(self.global_steps, [*self._validation_lines], validation=True)
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
