"""A tracker, a table, a dump, a record or a metric that fails ends no run: planted in verl's own loop."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tracking

from tests.recorded_run import rollout
from tests.verl_plugin.trainer_batches import Step, run_logging
from verl_video_tools.records.best_effort import BestEffort
from verl_video_tools.records.records import RecordWriter, read_records, step_files, step_of
from verl_video_tools.records.report import read_run
from verl_video_tools.verl_plugin import run_logging as run_logging_module
from verl_video_tools.verl_plugin.alarms import Alarms
from verl_video_tools.verl_plugin.run_logging import RunLogging
from verl_video_tools.verl_plugin.watchdog import ActorCheck

NUM_STEPS = 4


class Backend:
    """One of verl's; fails on the steps in `failing`."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        self.failing = set(failing)
        self.steps: list[int] = []

    def log(self, data: Mapping[str, Any], step: int) -> None:
        if step in self.failing:
            self.failing.discard(step)  # it comes back
            raise ConnectionError(f"step {step}: the server is away")
        self.steps.append(step)

    def finish(self, **_: Any) -> None:
        pass


class Trainer(trainer_module.VideoToolsTrainer):
    """verl's `fit`, whose steps train on nothing and measure nothing."""

    def __init__(self, folder: Path, **options: Any) -> None:
        settings = {"project_name": "p", "experiment_name": "e", "logger": ["console", "file"], "total_epochs": 1}
        settings |= {"val_before_train": False, "save_freq": -1, "test_freq": -1, "log_val_generations": 0, **options}
        self.config = OmegaConf.create({"trainer": settings, "global_profiler": {"steps": None}})
        self.global_steps, self.total_training_steps, self.steps_per_epoch = 0, NUM_STEPS, NUM_STEPS
        self._stop_file, self._saved_step, self._watchdog = folder / "stop_requested", -1, None
        self._phase, self._phase_started = "starting", 0.0
        self._actors, self._logging = ActorCheck(), run_logging(self, folder)
        self._updates = SimpleNamespace(trajectories={})
        work = super()._write_generations
        self._write_generations = BestEffort(work, "writing generations", "tracking/failures")
        self.logged: list[dict[str, Any]] = []
        self._init_dump_executor()

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        metrics[trainer_base.DAPO_FILTERED_REWARD_COUNTS_KEY] = {0.0: 1}
        return SimpleNamespace(keys=[], partition_id="train", tags=[])

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    on_train_begin = on_step_begin = on_step_end = _reissue_inflight_prompts = _nothing
    _start_profiling = _stop_profiling = _log_rollout_data = _nothing

    def _consume_sync_metrics(self) -> dict:
        return {}

    def _compute_metrics(self, batch: Any, metrics: dict, *_: Any, **__: Any) -> None:
        self.logged.append(metrics)


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Backend]:
    """In the place of those that verl makes."""
    made = {"wandb": Backend(), "file": Backend()}

    class Tracking(tracking.Tracking):
        def __init__(self, **_: Any) -> None:
            self.logger, self._finished = made, False

    monkeypatch.setattr(trainer_base, "Tracking", Tracking)
    monkeypatch.setattr(trainer_base, "SkipManager", SimpleNamespace(init=lambda _: None, set_step=lambda _: None))
    monkeypatch.setattr(trainer_base, "tq", SimpleNamespace(kv_clear=lambda **_: None))
    return made


def test_a_tracker_that_is_away_ends_no_run(
    tmp_path: Path, backends: dict[str, Backend], caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the run, and kept the backends behind it from every step."""
    backends["wandb"].failing = {2, NUM_STEPS}
    trainer = Trainer(tmp_path)
    trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert backends["wandb"].steps == [1, 2, 3, 4], "tried again with the next step, the last one at the end"
    assert backends["file"].steps == [1, 2, 3, 4]
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == [
        "failed: logging to wandb; training goes on, and the next call repeats this one "
        "(logged once, counted in tracking/failures)"
    ]
    assert sum(each.num_failures for each in trainer._logging.trackers) == 2


def test_a_table_that_cannot_be_logged_ends_no_run(
    tmp_path: Path, backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tables: list[tuple[Any, int]] = []

    class Table(tracking.DapoFilteredRewardTableLogger):
        def log(self, loggers: list[str], reward_counts: dict, step: int) -> None:
            if step == 1 and loggers == ["file"]:
                raise RuntimeError("no table")
            tables.append((loggers, step))

    monkeypatch.setattr(trainer_base, "DapoFilteredRewardTableLogger", Table)
    Trainer(tmp_path).fit(SimpleNamespace(agent_loop_workers=[]))
    assert [step for loggers, step in tables if loggers == ["console"]] == [1, 2, 3, 4]
    assert caplog.text.count("logging a table (Table)") == 1


def test_generations_that_cannot_be_written_end_no_run(tmp_path: Path, backends: dict[str, Backend]) -> None:
    """verl raised it in the next step, and again when it shut down."""
    trainer, folder = Trainer(tmp_path), tmp_path / "generations"
    folder.write_text("a file where the folder should be")
    one = {"inputs": ["i"], "outputs": ["o"], "gts": ["g"], "scores": [1.0], "reward_extra_infos_dict": {}}
    for step in (1, 2):
        trainer.global_steps = step
        trainer._dump_generations(**one, dump_path=str(folder))
        trainer._dump_executor.submit(lambda: None).result()  # until the writing has failed
    folder.unlink()
    trainer.global_steps = 3
    trainer._dump_generations(**one, dump_path=str(folder))
    trainer._shutdown_dump_executor()
    assert trainer._write_generations.num_failures == 3
    steps = [json.loads(path.read_text())["step"] for path in sorted(folder.glob("*.jsonl"))]
    assert steps == [1, 2, 3]


def recorded_before(folder: Path, **options: Any) -> Trainer:
    """A trainer that has loaded the checkpoint of step 2; an earlier start of the run had recorded six steps."""
    writer = RecordWriter(folder / "trajectories")
    for step in range(1, 7):
        writer.write(step, [{"step": step, **rollout("first start", 1.0)}])
    for step in (2, 4):
        writer.write(step, [{"step": step, **rollout("v", 1.0)}], validation=True)
    trainer = Trainer(folder, **options)
    trainer.global_steps = 2
    return trainer


def steps_in(folder: Path) -> list[list[int]]:
    """Of training and of validation."""
    return [[step_of(path) for path in step_files(folder, validation=validation)] for validation in (False, True)]


def test_a_resumed_run_archives_records_of_steps_that_it_trains_again(
    tmp_path: Path, backends: dict[str, Backend], capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps 5 and 6 of the lost policy stayed the newest for readers until the run came so far."""
    trainer, records = recorded_before(tmp_path), tmp_path / "trajectories"
    trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert backends["file"].steps == [3, 4]
    assert steps_in(records) == [[1, 2], [2]], "what was measured at step 2 is of the policy that goes on"
    assert steps_in(records / "abandoned_1") == [[3, 4, 5, 6], [4]]
    told = capsys.readouterr().out
    assert told.count("resuming from step 2: records of later steps") == 1
    assert f"(5 files in {records / 'abandoned_1'})" in told
    run = read_run("r", tmp_path)
    assert list(run.training) == [1, 2] and list(run.held_out) == [2]


def test_a_run_that_only_measures_abandons_no_record(tmp_path: Path) -> None:
    """It may be given a checkpoint that is not the last."""
    trainer = recorded_before(tmp_path, val_only=True, val_before_train=True)
    trainer._logging.archive_stale_records(2)
    assert steps_in(tmp_path / "trajectories") == [[1, 2, 3, 4, 5, 6], [2, 4]]


def test_records_that_cannot_be_archived_end_no_run(
    tmp_path: Path, backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = recorded_before(tmp_path)

    def read_only(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", read_only)
    trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert backends["file"].steps == [3, 4]
    assert "failed: archiving records of abandoned steps; training goes on" in caplog.text
    assert sum(each.num_failures for each in trainer._logging.recorders) == 1


class Told(Step):
    """A step whose metrics and records the trainer makes itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch)
        self.advantages()
        self.freed: list[Any] = []
        for row in self.queue.rows.values():
            row["extra_fields"]["reward_extra_info"]["acc"] = 0.0
        monkeypatch.setattr(trainer_base.PPOTrainer, "_compute_metrics", lambda *_, **__: None)
        monkeypatch.setattr(type(self.trainer), "_router_metrics", lambda _: {"router/imbalance": 0.0})
        monkeypatch.setattr(run_logging_module, "release", lambda batch: self.freed.append(batch) or {})
        self.folder = folder
        self.make_logging()

    def make_logging(self) -> RunLogging:
        self.trainer._logging = run_logging(self.trainer, self.folder)
        return self.trainer._logging

    def metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        self.trainer._logging.record_step(self.batch, 1, {}, {})  # as `step` does
        self.trainer._compute_metrics(self.batch, metrics, {}, global_steps=1, epoch=0)
        return metrics


def test_a_step_is_logged_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    logged = Told(monkeypatch, tmp_path)
    metrics = logged.metrics()
    assert metrics["rollout/count"] == 4 and metrics["router/imbalance"] == 0.0
    assert (metrics["records/failures"], metrics["tracking/failures"]) == (0, 0)
    assert len(list(read_records(tmp_path / "trajectories"))) == 4 and logged.freed == [logged.batch]


def test_a_router_that_is_not_ours_has_no_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    managers = [SimpleNamespace(global_load_balancer=SimpleNamespace())]
    trainer = object.__new__(trainer_module.VideoToolsTrainer)
    monkeypatch.setattr(type(trainer), "_rollout_server_managers", lambda _: managers)
    assert trainer._router_metrics() == {}


def test_a_rollout_that_never_reached_the_engine_lags_behind_no_policy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """verl would count one unreadable video in step 300 as 300 policies old."""
    logged = Told(monkeypatch, tmp_path)
    logged.batch.tags = [{"min_global_steps": version, "max_global_steps": version} for version in (299, 298, -1, 299)]
    logged.trainer._compute_metrics(logged.batch, {}, {}, global_steps=300, epoch=0)
    assert [tag["max_global_steps"] for tag in logged.batch.tags] == [299, 298, 299, 299]
    assert [tag["min_global_steps"] for tag in logged.batch.tags] == [299, 298, 299, 299]


def test_a_reward_without_accuracy_costs_its_metrics_and_no_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a reward manager of the user's own, which ended the run."""
    logged = Told(monkeypatch, tmp_path)
    for row in logged.queue.rows.values():
        del row["extra_fields"]["reward_extra_info"]["acc"]
    assert logged.metrics()["records/failures"] == 1
    assert len(list(read_records(tmp_path / "trajectories"))) == 4


@pytest.mark.parametrize("part", ["Logging._lines", "rollout_metrics", "Trainer._router_metrics", "Alarms.check"])
def test_metrics_that_cannot_be_made_end_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    logged = Told(monkeypatch, tmp_path)

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a metric nobody has thought of")

    owners = {"": run_logging_module, "Logging": RunLogging, "Trainer": type(logged.trainer), "Alarms": Alarms}
    owner, _, name = part.rpartition(".")
    monkeypatch.setattr(owners[owner], name, broken)
    logged.make_logging()
    for expected in (1, 2):
        assert logged.metrics()["records/failures"] == expected
    assert logged.freed == [logged.batch] * 2, "images are freed all the same"
    assert len(caplog.records) == 1 and "a metric nobody has thought of" in caplog.text


def test_records_of_held_out_rollouts_that_cannot_be_made_end_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logged = Told(monkeypatch, tmp_path)
    for row in logged.queue.rows.values():
        row["extra_fields"].pop("reward_extra_info")
    record = logged.trainer._logging.record_validation
    record(logged.batch, 1)
    assert record.num_failures == 1 and "records of held-out rollouts" in caplog.text


def test_what_verl_asks_of_its_trackers_is_theirs(tmp_path: Path, backends: dict[str, Backend]) -> None:
    trainer = Trainer(tmp_path)
    trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert trainer.logger.logger is backends
    trainer.logger.finish()
    assert trainer.logger._finished
