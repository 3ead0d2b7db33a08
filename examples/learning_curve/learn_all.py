"""Makes the runs of `schedule.py`, one after another. Stopped at any moment and started again, it goes on.

Usage: python -m examples.learning_curve.learn_all [--minutes MINUTES] [--again] [--outputs FOLDER]

A run works in `outputs/learn_<method>_<seed>`, and prints to `learn.log` there. Its `results.json` is copied to
`examples/learning_curve/results`, beside all others. Runs with results in either place are not made again; where these
are of another plan, a number is added to the folder and to the file. A run that fails is tried once more; what fails
again is listed with its cause at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.table import Table

from examples.learning_curve import stored
from examples.learning_curve.plans import PLAN_BEFORE, plan_of
from examples.learning_curve.provenance import REPO
from examples.learning_curve.run import RESULTS, Learning
from examples.learning_curve.schedule import SCHEDULE, Planned

NUM_TRIES = 2
LOCK = "learn_all.lock"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_ERROR = re.compile(r"\s*(?:\w+\.)*\w*(?:[Ee]rror|Exception)\b.*:|.*\(out of memory\?\)")
_STAGE = "error: stage "


def command_of(planned: Planned, folder: Path) -> list[str]:
    """What makes a run; it ends with all that it has started when this process is gone."""
    run = ["examples.learning_curve.run", "--method", planned.method, "--seed", str(planned.seed), "--out", str(folder)]
    return [sys.executable, "-m", "verl_video_tools.launch.supervise", "--", sys.executable, "-m", *run]


@dataclass
class LearnAll:
    """A schedule that is worked through.

    Attributes:
        outputs: for the runs' folders.
        results: folder of the results of all runs.
        minutes: start no run that is estimated to end later than this from now; None: no limit.
        again: make runs whose results are only in `results`, too.
        command: that makes a run in a folder.
    """

    outputs: Path
    results: Path = stored.FOLDER
    schedule: Sequence[Planned] = SCHEDULE
    minutes: float | None = None
    again: bool = False
    command: Callable[[Planned, Path], list[str]] = command_of
    console: Console = field(default_factory=Console)

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._estimated = self._taken = 0.0  # minutes, of the runs that were made
        self._states: dict[Planned, str] = {}
        self._causes: dict[Planned, str] = {}

    def run(self) -> int:
        """Work through the schedule; 1 if a run has failed, else 0."""
        self.outputs.mkdir(parents=True, exist_ok=True)
        with locked(self.outputs / LOCK, self._say) as lock:
            for number, planned in enumerate(self.schedule, start=1):
                self._states[planned] = self._make(planned, f"{number}/{len(self.schedule)} {planned.name}", lock)
        self._summarise()
        return 1 if self._causes else 0

    def _make(self, planned: Planned, title: str, lock: IO[str]) -> str:
        """Make a run unless it is finished; what has become of it."""
        learning = self._learning(planned)
        if _is_finished(learning):
            return f"finished before: {self._keep(planned, learning).name}"
        if not self.again and (name := self._result_of(learning)):
            return f"finished before: {name}.json"
        for attempt in range(1, NUM_TRIES + 1):
            estimate = learning.minutes_left()
            in_all = estimate * self._pace
            if self.minutes is not None and self._minutes + in_all > self.minutes:
                self._say(f"{title}: takes about {in_all:.0f} min, and {self.minutes - self._minutes:.0f} are left")
                return "failed" if planned in self._causes else f"not started: needs {in_all:.0f} min"
            log = learning.out / "learn.log"
            self._say(f"{title}: about {in_all:.0f} min, output in {log}")
            begin, place = self._minutes, log.stat().st_size if log.exists() else 0
            status = self._attempt(planned, learning.out, log, lock)
            minutes = self._minutes - begin
            if status == 0 and _is_finished(learning):
                self._estimated, self._taken = self._estimated + estimate, self._taken + minutes
                self._causes.pop(planned, None)
                copy = self._keep(planned, learning)
                self._say(f"{title}: finished after {minutes:.0f} min, {copy}")
                return f"finished: {copy.name}"
            printed = log.read_bytes()[place:].decode(errors="replace")
            self._causes[planned] = f"exit code {status}: {cause_of(printed)}; {log}"
            self._say(f"{title}: failed after {minutes:.0f} min (attempt {attempt} of {NUM_TRIES}), exit code {status}")
        return "failed"

    def _attempt(self, planned: Planned, folder: Path, log: Path, lock: IO[str]) -> int:
        """Exit code of one start of the run."""
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # The lock is held by the run, too: where this process is killed, the next waits until the run has ended.
            process = subprocess.Popen(
                self.command(planned, folder),
                cwd=REPO,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                pass_fds=[lock.fileno()],
            )
            try:
                return process.wait()
            except BaseException:  # asked to end
                process.terminate()
                process.wait()
                raise

    def _learning(self, planned: Planned) -> Learning:
        """The run in its folder: the first that is free, or was begun with the same plan."""
        folders = (self.outputs / name for name in stored.numbered(f"learn_{planned.name}"))
        runs = (Learning(planned.method, planned.seed, folder, plan_of(planned.method)) for folder in folders)
        return next(run for run in runs if not run.begun.exists() or run.is_own(json.loads(run.begun.read_text())))

    def _result_of(self, learning: Learning) -> str | None:
        """Name of a result of the same run in the folder of results."""
        return next((name for name, result in stored.load(self.results).items() if _is_of(result, learning)), None)

    def _keep(self, planned: Planned, learning: Learning) -> Path:
        return stored.add(learning.out / RESULTS, planned.name, self.results)

    @property
    def _minutes(self) -> float:
        """Since the start."""
        return (time.monotonic() - self._started) / 60

    @property
    def _pace(self) -> float:
        """Minutes that a minute of the estimates takes here."""
        return self._taken / self._estimated if self._estimated else 1.0

    def _summarise(self) -> None:
        table = Table(title="schedule", title_justify="left")
        for column in ("method", "seed", "state"):
            table.add_column(column)
        for planned in self.schedule:
            table.add_row(planned.method, str(planned.seed), self._states[planned])
        self.console.print(table)
        for planned, cause in self._causes.items():
            self._say(f"{planned.name} failed, {cause}")
        self._say("tables and pictures of the results: python -m examples.learning_curve.tables")

    def _say(self, text: str) -> None:
        self.console.print(f"[bold]learn-all[/bold] {text}", highlight=False, soft_wrap=True)


def _is_of(result: stored.Result, learning: Learning) -> bool:
    """Whether a result is of this method, seed and plan."""
    found = {"method": result["method"], "seed": result["seed"], "plan": PLAN_BEFORE | result["plan"]}
    return found == learning.told()


def _is_finished(learning: Learning) -> bool:
    """Whether the run's folder has its result, and not that of the same plan with fewer steps."""
    path = learning.out / RESULTS
    return path.exists() and _is_of(json.loads(path.read_text()), learning)


def cause_of(printed: str) -> str:
    """Why a run has failed, from what it printed: the stage, and the last line that names an error."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    stages = [line.removeprefix("error: ").partition(";")[0] for line in lines if line.startswith(_STAGE)]
    errors = [line for line in lines if _ERROR.match(line) and not line.startswith(_STAGE)]
    if stages:
        return f"{stages[-1]} ({errors[-1]})" if errors else stages[-1]
    return (errors or lines or ["it printed nothing"])[-1]


@contextmanager
def locked(path: Path, say: Callable[[str], None]) -> Iterator[IO[str]]:
    """Waits for another schedule, of claims or of learning runs, or for the run that a killed one has left."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another schedule works in {path.parent}, or the run of one that was killed; waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="start no run that is estimated to end later than this")
    parser.add_argument("--again", action="store_true", help="make runs whose results are in the repository, too")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="for the runs' folders")
    arguments = parser.parse_args()
    for number in _SIGNALS:
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        status = LearnAll(arguments.outputs.resolve(), minutes=arguments.minutes, again=arguments.again).run()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    sys.exit(status)


if __name__ == "__main__":
    main()
