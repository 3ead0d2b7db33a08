"""What a recipe prints of a run whose own output goes to a file: a line per step, our messages, and how it failed.

A run of verl prints thousands of lines from a dozen processes. `supervise --log FILE` sends them to that file, and this
shows what a user reads: a line for each step, from the one that verl's console logger writes; lines that this package
has written for the user; and after a failure the end of the log without the lines of `NOISE`. With VERBOSE=1 every line
is shown, and in the file as well.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

MARK = "[verl_video_tools]"
"""Begins every line that this package prints for the user."""
NOISE = {
    r"target_num_threads \d+ should not exceed": "TransferQueue takes as many threads as there are cores",
    r"R?otaryEmbedding: Failed to load weights": "vLLM reloads weights by layer; position embeddings have none",
    r"UserWarning: The given NumPy array is not writ": "torch about a read-only view, which is only read",
    r"\[Performance\]|Per-operation statistics|Time range: last": "TransferQueue's counters, every few minutes",
    r"FutureWarning|DeprecationWarning": "for the authors of verl and vLLM, not for who trains",
    r"^\s*[~^]+\s*$": "marks below a line of a traceback",
    r"^step:\d+ - |Training Progress: |Writing model shards: |Loading weights: ": "progress, which lines of steps show",
}
"""Lines of frameworks that tell a user nothing, as patterns, and why. They stay in the log."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"^\(\w+ pid=\d+(?:, ip=[\d.]+)?\) ?")
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*$")
_NOISE = re.compile("|".join(NOISE))
_TOTAL = re.compile(r"[Tt]otal(?: training)? steps: (\d+)")
_STEP = re.compile(r"step:(\d+) - (.+)$")
"""Of verl's console logger; a progress bar may stand before it."""
_NUMBER = re.compile(r"(.+):(?:np\.\w+\()?([-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)\)?")
_PROGRESS = re.compile(rf"{re.escape(MARK)} step (\d+)(?:/(\d+))?(?:: (.*))?$")
_SECONDS_BETWEEN_STEPS = 10.0
"""Between lines of steps, where steps are shorter: fine-tuning takes hundreds of a second each."""
_SECONDS_WITHOUT_STEP = 60.0
"""After which a line says what a long step is doing."""
_ENDED_BY_SIGNAL = (129, 130, 143)
"""Exit codes of a run that was asked to end."""
_LINES_OF_FAILURE = 30
_LONGEST_LINE = 400
_CHUNK_BYTES = 1 << 20

_TRAINING = (
    ("reward", "rollout/score/mean", ".3f"),
    ("accuracy", "rollout/acc/mean", ".3f"),
    ("calls", "tool/executed_per_rollout", ".2f"),
    ("frames", "frames/total/mean", ".1f"),
    ("flagged", "rollout/flagged", ".0f"),
)
_FINE_TUNING = (("loss", "train/loss", ".4f"), ("learning rate", "train/lr", ".1e"))
_VALIDATION = re.compile(r"val-core/(.+)/acc/mean@\d+|val/loss")


@dataclass
class Console:
    """Follows a run's log.

    Args:
        log: file that the run writes to; what stands in it already is of earlier starts.
        verbose: show every line.
        stream: to show lines on; None: standard output.
    """

    log: Path
    verbose: bool = False
    stream: TextIO | None = None

    def __post_init__(self) -> None:
        self._log_tail = _Tail(self.log)
        self._start = self._log_tail.place
        self._total: int | None = None
        self._first: tuple[int, float] | None = None
        self._shown_at = time.monotonic()
        self._unshown: str | None = None
        self._is_open = True

    def update(self) -> None:
        """Show what has come since."""
        for line in self._log_tail.new_lines():
            self._follow(line)

    def end(self, returncode: int) -> None:
        """Show the rest, and after a failure the end of the log."""
        self.update()
        if self._unshown is not None:
            self._show(self._unshown)
        if returncode == 0 or returncode in _ENDED_BY_SIGNAL or self.verbose:
            return
        self._show(f"{MARK} failed with exit code {returncode}; the end of {self.log}:")
        for line in self._last_lines():
            self._show(f"  {line}")

    # ---------------------------------------------------------------------------------------------------------- the log

    def _follow(self, line: str) -> None:
        if self._total is None and (found := _TOTAL.search(line)):
            self._total = int(found[1])
        if self.verbose:
            self._show(line)
            return
        text = clean(line)
        if step := _STEP.search(text):
            self._step(int(step[1]), metrics(step[2]))
            return
        if not text.startswith(MARK):
            return
        if progress := _PROGRESS.match(text):
            # What a step is doing, several times a minute: of use where steps are long.
            if progress[3] and time.monotonic() - self._shown_at >= _SECONDS_WITHOUT_STEP:
                self._show(text.removeprefix(f"{MARK} "))
            return
        self._show(text)

    def _last_lines(self) -> list[str]:
        """Without noise and repetitions, of this start."""
        with self.log.open("rb") as file:
            file.seek(max(self._start, self.log.stat().st_size - _CHUNK_BYTES))
            text = file.read().decode(errors="replace")
        kept: list[str] = []
        for line in map(clean, text.splitlines()):
            if line and not _NOISE.search(line) and line not in kept[-3:]:
                kept.append(line[:_LONGEST_LINE])
        return kept[-_LINES_OF_FAILURE:]

    # ------------------------------------------------------------------------------------------------------------ steps

    def _step(self, step: int, values: Mapping[str, float]) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
        line = step_line(step, self._total, values, self._seconds_left(step, now))
        if line is None:
            return
        is_last = step == self._total
        has_validation = any(map(_VALIDATION.fullmatch, values))
        if now - self._shown_at >= _SECONDS_BETWEEN_STEPS or is_last or has_validation:
            self._show(line)
        else:
            self._unshown = line

    def _seconds_left(self, step: int, now: float) -> float | None:
        """By the mean of the steps since the first one that was seen."""
        if self._total is None or self._first is None or step <= self._first[0]:
            return None
        return (now - self._first[1]) / (step - self._first[0]) * (self._total - step)

    # ----------------------------------------------------------------------------------------------------------- output

    def _show(self, line: str) -> None:
        self._shown_at, self._unshown = time.monotonic(), None
        if not self._is_open:
            return
        try:
            print(line, file=self.stream or sys.stdout, flush=True)
        except OSError:  # whoever read it has gone: the run goes on, and the log has everything
            self._is_open = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class _Tail:
    """Reads what is appended to a file, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = path.stat().st_size if path.exists() else 0

    def new_lines(self) -> Iterator[str]:
        """Those that have come since the last call."""
        try:
            size = self._path.stat().st_size
            if size < self.place:  # it was emptied
                self.place = 0
            if size == self.place:
                return
            with self._path.open("rb") as file:
                file.seek(self.place)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self.place += len(line)
                    yield line.decode(errors="replace").rstrip("\n")
        except OSError:  # not there yet, or not any more
            return


def clean(line: str) -> str:
    """A line without colours, without what a progress bar has overwritten, and without the process that it is from."""
    line = line.rstrip().rpartition("\r")[2]
    return _REPEATED.sub("", _PROCESS.sub("", _COLOUR.sub("", line))).rstrip()


def metrics(text: str) -> dict[str, float]:
    """The numbers of verl's console logger: `name:value - name:value`."""
    found = {}
    for part in text.split(" - "):
        if number := _NUMBER.fullmatch(part):
            found[number[1]] = float(number[2])
    return found


def step_line(step: int, total: int | None, values: Mapping[str, float], seconds_left: float | None) -> str | None:
    """A step in one line; None where it has nothing to show.

    Args:
        values: metrics by verl's names.
    """
    parts = [f"{label} {values[name]:{form}}" for label, name, form in _TRAINING + _FINE_TUNING if name in values]
    for name in sorted(values):
        if found := _VALIDATION.fullmatch(name):
            label = "validation loss" if found[1] is None else f"held-out accuracy ({found[1]})"
            parts.append(f"{label} {values[name]:.3f}")
    if not parts:
        return None
    if (seconds := values.get("perf/time_per_step") or values.get("timing_s/step")) is not None:
        parts.append(f"{seconds:.0f} s")
    if seconds_left is not None and step != total:
        parts.append(f"{_duration(seconds_left)} left")
    return f"step {step}{'' if total is None else f'/{total}'}  " + ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes} min" if seconds >= 60 else f"{round(seconds)} s"
