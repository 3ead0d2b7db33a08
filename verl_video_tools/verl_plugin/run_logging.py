"""What a run logs and records, so that no failure of it ends the run.

verl's trainer raises whatever a tracker raises: a server of Weights & Biases that is away, or a full disk, ends a run
of days. Here each backend, table, record and metric fails for itself, and is counted. A tracker that cannot be set up
still ends the run, before its first step. The trainer calls `RunLogging` at the events of a step:

- `record_step` while TransferQueue holds the step's data, and before verl saves its checkpoint: a run that dies after
  that goes on with the next step.
- `step_measured` when verl has its own metrics; alarms look at all of them.

Pictures go to trackers that show any, every `video_tools.trainer.tracked_rollouts_every` steps. The module of a tracker
is the one that verl has imported, since `trainer.logger` names it. A caption holds text of rows and of the model, which
may be anything: wandb and SwanLab show it as text, MLflow shows a file that ends with `.txt` as text, and TensorBoard
renders it as Markdown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from PIL import Image

from verl_video_tools.core.types import Trajectory
from verl_video_tools.methods.breakdown import all_components
from verl_video_tools.records.best_effort import BestEffort
from verl_video_tools.records.metrics import Rollout, components_of, rollout_metrics
from verl_video_tools.records.records import RecordWriter, archive_stale_records
from verl_video_tools.records.rollout_picture import outcome, rollout_picture
from verl_video_tools.verl_plugin import queue
from verl_video_tools.verl_plugin.batching import DroppedRollouts, keys_of, rollouts_of
from verl_video_tools.verl_plugin.images import release
from verl_video_tools.verl_plugin.queue import KVBatchMeta
from verl_video_tools.verl_plugin.settings import (
    CACHED_TOKENS,
    SAMPLED_TOKENS,
    TOKEN_COUNTS,
    TrainerOptions,
    configured_methods,
    unpack_record,
)

TRACKING_FAILURES, _RECORD_FAILURES = "tracking/failures", "records/failures"
"""Metrics: failed attempts of the run so far."""
_NO_TRAJECTORIES: Mapping[str, Trajectory] = {}


class BestEffortTracking:
    """verl's `Tracking`; all but `log` is its own."""

    def __init__(self, tracking: Any) -> None:
        self._tracking = tracking
        self.calls = [
            BestEffort(partial(tracking.log, backend=[name]), f"logging to {name}", TRACKING_FAILURES)
            for name in tracking.logger
        ]

    def log(self, data: dict[str, Any], step: int) -> None:
        for log in self.calls:
            log(data=data, step=step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracking, name)


class BestEffortTables:
    """One of verl's loggers of tables, which asks for the names of the backends with each table."""

    def __init__(self, tables: Any) -> None:
        self.calls = [BestEffort(tables.log, f"logging a table ({type(tables).__name__})", TRACKING_FAILURES)]

    def log(self, backends: str | Sequence[str], table: Any, step: int) -> None:
        for name in [backends] if isinstance(backends, str) else backends:
            self.calls[0]([name], table, step)


class RunLogging:
    """Records, metrics and alarms of one run.

    Args:
        config: verl's whole configuration.
        router_metrics: asked once per step.
    """

    def __init__(self, config: DictConfig, options: TrainerOptions, router_metrics: Callable[[], Mapping[str, float]]):
        trainer = config.trainer
        self._folder = Path(trainer.default_local_dir) / "trajectories"
        self._only_measures = trainer.get("val_only", False) and trainer.get("val_before_train", True)
        self._filters_groups = bool((config.algorithm.get("filter_groups") or {}).get("enable"))
        self._with_tokens, self._tracked_every = options.record_tokens, options.tracked_rollouts_every
        # verl's rows have the engine's log-probabilities only where it was asked for them.
        self._with_log_probs = bool(config.actor_rollout_ref.rollout.calculate_log_probs)
        self._router_metrics = router_metrics
        self._components = set(all_components(configured_methods(config.actor_rollout_ref.rollout)))
        self.alarms, self.dropped = options.make_alarms(), DroppedRollouts()
        self._step_lines: list[dict[str, Any]] = []
        self._validation_lines: list[dict[str, Any]] = []
        writer = RecordWriter(self._folder)
        self._write_records = BestEffort(writer.write, f"writing records to {self._folder}", _RECORD_FAILURES)
        # These are not tried again: later steps are the run's own by then, TransferQueue forgets a batch's rows, and
        # alarms look at a step's own metrics.
        once = partial(BestEffort, counter=_RECORD_FAILURES, max_pending=0)
        self.archive_stale_records = once(self._archive, "archiving records of abandoned steps")
        self.record_step = once(self._record, "making records of a step")
        self.record_validation = once(self._record_validation, "making records of held-out rollouts")
        self._add_metrics = once(self._metrics_of_step, "making metrics of a step")
        self._check_alarms = once(self.alarms.check, "alarms on a step's metrics")
        # Each tracker for itself: one that fails keeps no picture from the others.
        show = partial(BestEffort, counter=TRACKING_FAILURES, max_pending=0)
        self._senders = {name: show(send, f"showing rollouts in {name}") for name, send in SENDERS.items()}
        self._track_rollouts = show(partial(track, senders=self._senders), "drawing rollouts for trackers")
        self.trackers = [self._track_rollouts, *self._senders.values()]
        """Calls of trackers; the trainer adds those of verl's loggers."""
        self.recorders = [
            self._write_records,
            self.archive_stale_records,
            self.record_step,
            self.record_validation,
            self._add_metrics,
            self._check_alarms,
        ]

    def step_measured(self, batch: KVBatchMeta, metrics: dict, step: int) -> None:
        """Add metrics of a step's rollouts, raise alarms on all of its metrics, and free its images."""
        self._add_metrics(metrics)
        self._check_alarms(step, metrics)
        metrics.update(release(batch))
        for name, calls in ((TRACKING_FAILURES, self.trackers), (_RECORD_FAILURES, self.recorders)):
            metrics[name] = sum(each.num_failures for each in calls)

    def validation_begun(self) -> None:
        self._validation_lines.clear()

    def validation_ended(self, step: int) -> None:
        self._write_records(step, [*self._validation_lines], validation=True)

    def run_ended(self) -> None:
        """Try once more what has failed: no further call will come."""
        for call in (*self.trackers, self._write_records):
            call.try_again()

    def _archive(self, step: int) -> None:
        if self._only_measures:
            return  # a run that only measures a checkpoint, maybe not the last one, abandons nothing
        if moved := archive_stale_records(self._folder, step):
            num_files, folder = moved
            print(
                f"[verl_video_tools] resuming from step {step}: records of later steps, which are trained again, are "
                f"archived ({num_files} files in {folder})",
                flush=True,
            )

    def _record(
        self, batch: KVBatchMeta, step: int, backends: Mapping[str, Any], trajectories: Mapping[str, Trajectory]
    ) -> None:
        self._step_lines = []  # if this fails, the last step's are not this one's
        self._step_lines = self._lines(batch, step, trained=True, trajectories=trajectories)
        self._write_records(step, self._step_lines)
        if self._tracked_every and step % self._tracked_every == 0:
            self._track_rollouts(backends, self._step_lines, step)

    def _record_validation(self, batch: KVBatchMeta, step: int) -> None:
        self._validation_lines += self._lines(batch, step, trained=False)

    def _metrics_of_step(self, metrics: dict) -> None:
        metrics.update(rollout_metrics([Rollout.from_line(line) for line in self._step_lines]))
        if self._filters_groups:
            metrics.update(self.dropped.take())
        metrics.update(self._router_metrics())

    def _lines(
        self,
        batch: KVBatchMeta,
        step: int,
        *,
        trained: bool,
        trajectories: Mapping[str, Trajectory] = _NO_TRAJECTORIES,
    ) -> list[dict[str, Any]]:
        """One line per rollout: what is the rollout's from its last row, counts of tokens summed over its sequences.

        `line["trajectory"]` is a `Trajectory`, as in the lines that `records.records.read_records` gives.

        Args:
            trained: the batch has advantages; otherwise those of the lines are None.
            trajectories: records that have been unpacked already, by the key of a rollout's last row.
        """
        token_fields = ["prompts", "response_mask", *(["advantages"] if trained else [])]
        if self._with_tokens:
            token_fields += ["responses", *(["old_log_probs"] if trained else [])]
            token_fields += ["rollout_log_probs"] if self._with_log_probs else []
        rollouts = rollouts_of(batch)
        unread = iter(queue.read(keys_of(rollouts), batch.partition_id, *token_fields, *_ROW_FIELDS))
        lines = []
        for rollout in rollouts:
            rows = [next(unread) for _ in rollout.keys]
            last = rows[-1]
            extra_fields = last["extra_fields"]
            trajectory = trajectories.get(rollout.keys[-1]) or unpack_record(extra_fields)
            # verl stacks the rows of a batch, so that each has the components of all methods.
            of_others = self._components.difference(components_of(trajectory) or self._components)
            reward = _plain(extra_fields["reward_extra_info"])
            line: dict[str, Any] = {
                "step": step,
                "uid": rollout.uid,
                "session_id": rollout.session_id,
                "agent_name": trajectory.method,
                "data_source": last["data_source"],
                "ground_truth": _ground_truth(last["reward_model"]),
                "extra_info": _plain(last["extra_info"]),
                "policy_version": [extra_fields.get("min_global_steps"), extra_fields.get("max_global_steps")],
                "reward": {name: value for name, value in reward.items() if name not in of_others},
                "advantage": _first_advantage(rows) if trained else None,
                "num_sequences": len(rows),
                "num_prompt_tokens": sum(len(row["prompts"]) for row in rows),
                **{name: sum(row["extra_fields"][name] for row in rows) for name in TOKEN_COUNTS},
                **{name: extra_fields.get(name) for name in (CACHED_TOKENS, SAMPLED_TOKENS)},
                "trajectory": trajectory,
            }
            if self._with_tokens:
                line["sequences"] = [{name: row[name].tolist() for name in token_fields} for row in rows]
            lines.append(line)
        return lines


_ROW_FIELDS = ("extra_fields", "data_source", "reward_model", "extra_info")


def _first_advantage(rows: Sequence[Mapping[str, Any]]) -> float:
    """That of the first trained token of a rollout's last sequence that has one; all its tokens have the same."""
    for row in reversed(rows):
        if (mask := row["response_mask"].bool()).any():
            return float(row["advantages"][mask][0])
    return 0.0


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


# ------------------------------------------------------------------------------------------------ pictures in a tracker


Send = Callable[[Any, str, Image.Image, str, int], None]
"""Sends a picture to one of verl's backends: backend, name, picture, caption, step."""


def _module(backend: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    """The modules `wandb` and `swanlab` are verl's backends themselves."""
    backend.log({name: backend.Image(picture, caption=caption)}, step=step)


def _mlflow(_: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    """Into the run that verl has started; `mlflow.log_image` would start another where that one is over."""
    import mlflow

    run = mlflow.active_run()
    if run is None:
        raise RuntimeError("no MLflow run is active in this thread, so that rollouts are not shown there")
    client = mlflow.MlflowClient()
    client.log_image(run.info.run_id, picture, key=name, step=step)
    client.log_text(run.info.run_id, caption, f"{name}/step_{step}.txt")


def _tensorboard(backend: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    backend.writer.add_image(name, np.asarray(picture), step, dataformats="HWC")
    backend.writer.add_text(name, as_code_block(caption), step)


SENDERS: Mapping[str, Send] = {
    "wandb": _module,
    "swanlab": _module,
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
}
"""By verl's name of a backend."""


def track(
    backends: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    step: int,
    senders: Mapping[str, Send] = SENDERS,
) -> None:
    """Send pictures of a step's rollouts to those backends that show any.

    Args:
        backends: verl's (`Tracking.logger`), by name.
        lines: of records, as `records.read_records` gives them.
        senders: by name of a backend. One that raises ends the call.
    """
    names = [name for name in backends if name in senders]
    if not names:
        return
    for number, line in enumerate(chosen(lines)):
        picture, caption = rollout_picture(line), caption_of(line)
        for name in names:
            senders[name](backends[name], f"rollouts/{number}", picture, caption, step)


def caption_of(line: Mapping[str, Any]) -> str:
    """Question and outcome. Half a surrogate pair, which files and requests cannot hold, becomes a question mark."""
    text = f"{line['trajectory'].question}\n{outcome(line)}"
    return text.encode("utf-8", errors="replace").decode()


def as_code_block(text: str) -> str:
    """Markdown that shows a text as it is: an indented block, which nothing inside can end, as it could a fence."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def chosen(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rollouts of the group whose rewards differ most: the best and the worst."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["uid"]].append(line)
    if not groups:
        return []
    ranked = [sorted(group, key=_score, reverse=True) for group in groups.values()]
    group = max(ranked, key=lambda group: _score(group[0]) - _score(group[-1]))
    return [group[0], *group[1:][-1:]]


def _score(line: Mapping[str, Any]) -> float:
    return float(line["reward"].get("score", 0.0))
