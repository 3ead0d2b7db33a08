"""Commands that run one after another, each within a time of its own; one that fails does not stop the next."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.integration.leftovers import VARIABLE, kill_processes_of

REPO = Path(__file__).parents[2]
TAIL_CHARACTERS = 3000


@dataclass(frozen=True)
class Stage:
    """A command; `environment` is what it gets besides ours."""

    name: str
    command: Sequence[str]
    limit_seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a stage ended. `log` holds all that it printed."""

    stage: Stage
    status: Literal["ok", "failed", "out of time"]
    exit_code: int | None
    seconds: float
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def tail(self) -> str:
        return self.output[-TAIL_CHARACTERS:]


def run_stage(stage: Stage, folder: Path) -> Outcome:
    """Run a command to its end, or to the end of its time; nothing that it started is left."""
    log = folder / f"{stage.name}.log"
    marker = f"{stage.name}-{os.getpid()}-{time.time_ns()}"
    exit_code: int | None = None
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        try:
            process = subprocess.Popen(
                stage.command,
                cwd=REPO,
                env={**os.environ, **stage.environment, VARIABLE: marker},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            file.write(f"{stage.command[0]}: {error}\n")
            return Outcome(stage, "failed", None, time.monotonic() - started, log)
        try:
            exit_code = process.wait(timeout=stage.limit_seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_processes_of(marker)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    status: Literal["ok", "failed", "out of time"] = "ok" if exit_code == 0 else "failed"
    if exit_code is None:
        status = "out of time"
    return Outcome(stage, status, exit_code, time.monotonic() - started, log)
