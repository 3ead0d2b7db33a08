"""One segment: the recipe under a supervisor, sampled after every step until its time is over or it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.soak import sampler
from benchmarks.soak.faults import Files, planted
from benchmarks.soak.segments import SegmentWriter
from verl_video_tools.records.report import read_log

REPO = Path(__file__).parents[2]
SHARED_MEMORY = Path("/dev/shm")
_LOOK_SECONDS = 0.25
_START_SECONDS = 900.0
"""Time for the first step; the first segment makes videos and a cold-started model before."""
_STEP_SECONDS = 300.0
_SAVE_SECONDS = 120.0
"""Time to end the step and to save, after the run was told to stop."""
_CACHE_BYTES = 4_000_000
"""Capacity of each process's frame cache: small, so that it is full soon."""
_NO_END = 1_000_000
DEMO, ROWS = "demo_mixed", "rows.parquet"
"""In a soak's folder: the synthetic world, and the rows of it that a soak trains on."""

_SETTINGS = {
    "VERBOSE": "1",
    "RAY_task_events_max_num_task_in_gcs": "1000",  # as many as a run of hours has: Ray would keep 100,000
}
_OPTIONS = (
    "--save-on-signal",
    "data.train_batch_size=2",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.optim.lr=1e-6",  # the policy stays what it is, and so does what a step costs
    "trainer.save_freq=20",
    f"trainer.total_training_steps={_NO_END}",
    f"trainer.total_epochs={_NO_END}",
)
"""Of the recipe: steps as short as they can be, and no last one."""


@dataclass(frozen=True)
class Options:
    """Of a soak.

    Attributes:
        out: its folder.
        seconds: after its first step, when a segment ends.
        seed: of the faults.
    """

    out: Path
    seconds: float
    seed: int


class SegmentError(Exception):
    """The run has ended by itself, or hangs, though no process of it was killed."""


def run_segment(options: Options) -> str:
    """Run a segment, and return how it ended: `time`, or the fault that ended it.

    Raises:
        SegmentError: as it says; the segment's end is written.
    """
    out = options.out.resolve()
    files = Files(out / DEMO / "videos", out / "cache", out / "displaced")
    writer = SegmentWriter(out, {"commit": _commit(), "seed": options.seed})
    random = Random(f"{options.seed} {writer.number}")
    faults_told: list[str] = []

    def tell(step: int, fault: str) -> None:
        print(f"soak: step {step}: {fault}", flush=True)
        faults_told.append(fault)
        writer.fault(step, fault)

    outcome = "interrupted"
    try:
        with (
            tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as temporary,
            planted(random, files, lambda: _descendants(recipe), tell) as (faults, judge_url),
            _recipe(out, Path(temporary), writer.number, judge_url) as recipe,
        ):
            watch = _Watch(recipe, out, Path(temporary), writer.number)
            while (step := watch.next_step(options.seconds)) is not None:
                writer.sample(watch.sample(step))
                faults.after(step)
            if watch.ended and not (faults_told and faults_told[-1].endswith("killed")):
                raise SegmentError(
                    f"the run ended by itself, with exit code {recipe.returncode}; the end of {watch.log}:\n"
                    f"{watch.log.read_text(errors='replace')[-3000:]}"
                )
            outcome = faults_told[-1] if watch.ended else "time"
            if not watch.ended:
                faults.repair()
                _stop(recipe)
    except SegmentError as error:
        outcome = str(error).partition(";")[0]
        raise
    finally:
        writer.close(outcome)
    return outcome


class _Watch:
    """Follows a run by its log of metrics."""

    def __init__(self, recipe: subprocess.Popen[bytes], out: Path, temporary: Path, number: int) -> None:
        self.log = out / f"segment_{number:04d}.log"
        self.ended = False
        self._recipe, self._metrics, self._last_step = recipe, _metrics_path(out, number), -1
        self._size = 0
        self._started = self._last_seen = time.monotonic()
        self._first_seen: float | None = None
        self._folders = {
            "temporary files": temporary / "files",
            "Ray's session": temporary / "ray",
            "cache folders": out / "cache",
        }
        self._shared_before = set(os.listdir(SHARED_MEMORY))

    def next_step(self, seconds: float) -> int | None:
        """Wait for the next step to be done; None once the run has ended, or `seconds` after the first step.

        Raises:
            SegmentError: no step was done for minutes.
        """
        while True:
            self.ended = self._recipe.poll() is not None
            now = time.monotonic()
            if self.ended or now - (self._first_seen or now) >= seconds:
                return None
            step = self._logged_step()
            if step > self._last_step:
                self._first_seen = self._first_seen or now
                self._last_step, self._last_seen = step, now
                return step
            patience = _START_SECONDS if self._last_step < 0 else _STEP_SECONDS
            if now - self._last_seen > patience:
                raise SegmentError(f"no step after {self._last_step} for {patience:.0f} s; see {self.log}")
            time.sleep(_LOOK_SECONDS)

    def _logged_step(self) -> int:
        """The last step in the log, which is read only where it has grown."""
        size = self._metrics.stat().st_size if self._metrics.exists() else 0
        if size == self._size:
            return self._last_step
        self._size = size
        return max(read_log(self._metrics), default=-1)

    def sample(self, step: int) -> dict[str, Any]:
        folders = sampler.folder_usage(self._folders)
        folders["files in /dev/shm"] = sampler.new_files_megabytes(SHARED_MEMORY, self._shared_before)
        return {
            "step": step,
            "seconds": round(time.monotonic() - self._started, 2),
            "processes": sampler.process_usage(_descendants(self._recipe)),
            "folders": folders,
        }


def _metrics_path(out: Path, number: int) -> Path:
    return out / "run" / f"metrics_{number:04d}.jsonl"


@contextmanager
def _recipe(out: Path, temporary: Path, number: int, judge_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """The run; a supervisor ends all of it when this process ends, whatever ends it."""
    arguments = [
        *_OPTIONS,
        f"trainer.default_local_dir={out / 'run'}",
        f"video_tools.judge.base_url={judge_url}",
        "video_tools.judge.deadline_seconds=3",
        f"video_tools.judge.max_steps_without_verdict={_NO_END}",
        f"video_tools.judge.cache_dir={out / 'cache' / 'judge'}",
    ]
    environment = {
        **os.environ,
        **_SETTINGS,
        "DEVICE": "cpu",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(REPO),
        "VERL_USE_EXTERNAL_MODULES": "benchmarks.soak.small_caches",
        "OUTPUT_DIR": str(out),
        "TRAIN_FILES": str(out / ROWS),
        "VERL_FILE_LOGGER_PATH": str(_metrics_path(out, number)),
        "VVT_FRAME_CACHE_BYTES": str(_CACHE_BYTES),
        "TMPDIR": str(temporary / "files"),
        "RAY_TMPDIR": str(temporary),  # Ray adds a folder `ray`; a longer path would be too long for its sockets
    }
    (temporary / "files").mkdir()
    command = [sys.executable, "-m", "verl_video_tools.launch.supervise", "--"]
    command += ["bash", str(REPO / "recipes" / "mixed_grpo.sh"), *arguments]
    with (out / f"segment_{number:04d}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=out,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this program alone, which ends the run in order
        )
        try:
            yield process
        finally:
            process.terminate()  # the supervisor leaves nothing behind
            process.wait()


def _stop(recipe: subprocess.Popen[bytes]) -> None:
    """Let the run save a checkpoint and end: SIGTERM for the recipe's shell, the supervisor's child."""
    for child in psutil.Process(recipe.pid).children():
        with suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        recipe.wait(_SAVE_SECONDS)


def _descendants(recipe: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(recipe.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _commit() -> str:
    found = subprocess.run(
        ["git", "-C", REPO, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
