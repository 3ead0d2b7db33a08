"""What `vvt train` shows of a run whose own output goes to a file: a line per step, our messages, and how it failed.

A run of verl prints thousands of lines from a dozen processes. They go to a log, and this shows what a user reads: a
line for each step, from the one that verl's console logger writes; lines that this package has written for the user,
its warnings among them (`verl_plugin.marked_warnings`); and after a failure the end of the log. With VERBOSE=1 every
line is shown, and in the file as well.

A thread of its own shows them. A reader who has stopped (a pipe to `less`) then delays no signal to the run, and
nothing that fails here ends the run.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import TextIO

from verl_video_tools.verl_plugin.marked_warnings import MARK

_TOTAL = re.compile(r"[Tt]otal(?: training)? steps: (\d{1,18})\b")
_STEP = re.compile(r"step:(\d{1,18}) - (.+)$")
"""Of verl's console logger; a progress bar may stand before it."""
_PROGRESS = re.compile(rf"{re.escape(MARK)} step (\d+)(?:/(\d+))?(?:: (.*))?$")
_WARNING = re.compile(rf"{re.escape(MARK)} (?:warning|error|critical): ")
_NUMBER = re.compile(r"(.+):(?:np\.\w+\()?([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|-?inf)\)?")
_VALIDATION = re.compile(r"val-core/(.+)/acc/mean@\d+|val/loss")
_SHOWN_METRICS = (
    ("reward", "rollout/score/mean", ".3f"),
    ("accuracy", "rollout/acc/mean", ".3f"),
    ("calls", "tool/executed_per_rollout", ".2f"),
    ("frames", "frames/total/mean", ".1f"),
    ("flagged", "rollout/flagged", ".0f"),
    ("loss", "train/loss", ".4f"),
    ("learning rate", "train/lr", ".1e"),
)
_PAUSE_SECONDS = 10.0
"""Between lines of steps, where steps are shorter: fine-tuning takes hundreds of a second each."""
_SECONDS_WITHOUT_STEP = 60.0
"""After which a line says what a long step is doing."""
_SAME_WARNINGS = 3
"""Shown of those that differ in numbers and files only: a broken file can warn with every rollout."""
_POLL_SECONDS = 0.2
_SECONDS_FOR_THE_REST = 5.0
"""For a reader to take anything of what is left when the run is over."""
ENDED_BY_SIGNAL = (129, 130, 143)
"""Exit codes of a run that SIGHUP, SIGINT or SIGTERM has ended."""

LINES_OF_FAILURE = 30
ERRORS_OF_FAILURE = 5
_LONGEST_LINE = 400
_CHUNK_BYTES = 1 << 20
_NOISE = re.compile(
    r"^step:\d+ - |Training Progress: |Loading weights: |Writing model shards: "  # lines of steps show progress
    r"|target_num_threads \d+ should not exceed|\[Performance\]"  # of TransferQueue, in every step
    r"|FutureWarning|DeprecationWarning|is deprecated!"
    r"|(^|\s)[~^]+\s*$"  # marks below a line of a traceback
)
"""Framework output that says nothing about a failure."""
_PREFIX = re.compile(
    r"\x1b\[[0-9;]*[A-Za-z]"  # colours
    r"|^(?:\((?:\w+ )?pid=\d+(?:, ip=[\da-f.:]+)?\) ?)+"  # Ray's process
    r"|^\[rank\d+\]: ?"
    r"| ?\[repeated \d+x across cluster\].*$"
)
_VLLM_PREFIX = re.compile(r"^(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]+:\d+\] ?")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:\(\w+\))?(?:: .*)?")
"""The last line of a traceback."""
_RAISED_BY_RAY = re.compile(r"ray\.exceptions\.(?:RayTaskError|ActorDiedError|ActorUnavailableError|RayActorError)\b")
"""Raised in the driver for whatever was raised elsewhere."""


class Console:
    """Shows a run's log while it grows: `start` once the run writes to it, `end` when the run is over.

    Args:
        log: file that the run writes to; what stands in it already is of earlier starts.
        verbose: show every line.
        stream: to show lines on; None: standard output.
    """

    def __init__(self, log: Path, verbose: bool = False, stream: TextIO | None = None) -> None:
        self.log = log
        self.verbose = verbose
        self._stream = sys.stdout if stream is None else stream
        log.touch()
        self._start = self._num_read = log.stat().st_size
        self._total: int | None = None
        self._first: tuple[int, float] | None = None
        self._shown_at = time.monotonic()
        self._num_shown = 0
        self._pending: str | None = None
        self._warnings: Counter[str] = Counter()
        self._returncode = 0
        self._is_over = Event()
        self._thread = Thread(target=self._follow_log, name="console", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, returncode: int) -> None:
        """Let the rest be shown, and after a failure the end of the log."""
        self._returncode = returncode
        self._is_over.set()
        before = -1
        while self._thread.is_alive() and before != self._num_shown:  # a slow reader gets every line
            before = self._num_shown
            self._thread.join(_SECONDS_FOR_THE_REST)

    def _follow_log(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            self.show_new_lines()
        self.show_rest(self._returncode)

    def show_new_lines(self, *, with_unfinished: bool = False) -> None:
        """What has come since the last call; it takes as long as the reader does.

        Args:
            with_unfinished: also a last line whose end is missing, of a process that is gone.
        """
        with suppress(OSError), self.log.open("rb") as file:  # a network's file may be away for a moment
            file.seek(self._num_read)
            for line in file:
                if line.endswith(b"\n") or with_unfinished:
                    self._num_read += len(line)
                    self._show_line(line.decode(errors="replace").rstrip("\n"))

    def show_rest(self, returncode: int) -> None:
        """The last lines, and after a failure the end of the log."""
        self.show_new_lines(with_unfinished=True)
        if self._pending is not None:
            self._write(self._pending)
        if returncode == 0 or returncode in ENDED_BY_SIGNAL or self.verbose:
            return
        errors: list[str] = []
        last: list[str] = []
        with suppress(OSError):
            errors, last = end_of_log(self.log, self._start)
        if errors:
            self._write("\n  ".join([f"{MARK} errors in {self.log}:", *errors]))
        title = f"{MARK} failed with exit code {returncode}; the end of {self.log}:"
        self._write("\n  ".join([title, *last]))

    def _show_line(self, line: str) -> None:
        if self._total is None and (total := _TOTAL.search(line)):
            self._total = int(total[1])
        text = clean(line)
        if self.verbose:
            self._write(line)
        elif step := _STEP.search(text):
            self._show_step(int(step[1]), metrics(step[2]))
        elif progress := _PROGRESS.match(text):
            # What a step is doing, several times a minute: of use where steps are long.
            if progress[3] and time.monotonic() - self._shown_at >= _SECONDS_WITHOUT_STEP:
                self._write(text.removeprefix(f"{MARK} "))
        elif _WARNING.match(text):
            self._warn(text)
        elif text.startswith(MARK):
            self._write(text)

    def _warn(self, text: str) -> None:
        kind = re.sub(r"\d+", "0", re.sub(r"\S*/\S*", "/", text))
        self._warnings[kind] += 1
        if self._warnings[kind] == _SAME_WARNINGS:
            text += " (further warnings of this kind are in the log only)"
        if self._warnings[kind] <= _SAME_WARNINGS:
            self._write(text)

    def _show_step(self, step: int, values: Mapping[str, float]) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
        first, began = self._first
        seconds_left: float | None = None
        if self._total is not None and step > first:  # by the mean of the steps since the first one that was seen
            seconds_left = max(0.0, (now - began) / (step - first) * (self._total - step))
        if (line := step_line(step, self._total, values, seconds_left)) is None:
            return
        has_validation = any(map(_VALIDATION.fullmatch, values))
        if now - self._shown_at >= _PAUSE_SECONDS or step == self._total or has_validation:
            self._write(line)
        else:
            self._pending = line

    def _write(self, line: str) -> None:
        self._shown_at, self._pending = time.monotonic(), None
        write_line(self._stream, line)
        self._num_shown += 1


def write_line(stream: TextIO, line: str) -> None:
    """Write it at once, with escapes for what the encoding lacks; a reader who has gone is no error.

    Past the stream's buffer: Python would wait for its lock at the end of a program whose thread still writes.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # no file (`io.UnsupportedOperation` is both), or closed
        with suppress(ValueError):
            stream.write(line + "\n")
        return
    left = (line + "\n").encode(stream.encoding or "utf-8", "backslashreplace")
    with suppress(OSError):
        while left:
            select.select([], [descriptor], [])  # one that does not block takes nothing while it is full
            left = left[os.write(descriptor, left) :]


def clean(line: str) -> str:
    """A line without colours, without what a progress bar has overwritten, and without the process that it is from."""
    line = line.rstrip().rpartition("\r")[2]
    while (shorter := _PREFIX.sub("", line)) != line:  # a colour may stand before the process
        line = shorter
    return line.rstrip()


def end_of_log(log: Path, start: int) -> tuple[list[str], list[str]]:
    """What a user needs to see of a run that failed.

    Args:
        start: bytes of the log that are of earlier runs.

    Returns:
        Errors that were raised before the last lines, where a launcher's own report hides them, and the last lines:
        without noise, repetitions, and the lines for the user, which have been shown.
    """
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _CHUNK_BYTES))
        text = file.read().decode(errors="replace")
    lines: list[str] = []
    for line in map(clean, text.splitlines()):
        if line and not line.startswith(MARK) and not _NOISE.search(line) and line not in lines[-3:]:
            lines.append(line[:_LONGEST_LINE])
    last = lines[-LINES_OF_FAILURE:]
    earlier = [_VLLM_PREFIX.sub("", line) for line in lines[:-LINES_OF_FAILURE]]
    raised = [line for line in earlier if _RAISED.fullmatch(line) and not _RAISED_BY_RAY.match(line)]
    errors = [line for line in dict.fromkeys(reversed(raised)) if line not in last][:ERRORS_OF_FAILURE]
    return errors[::-1], last


def metrics(text: str) -> dict[str, float]:
    """The numbers of verl's console logger: `name:value - name:value`."""
    numbers = filter(None, map(_NUMBER.fullmatch, text.split(" - ")))
    return {number[1]: float(number[2]) for number in numbers}


def step_line(step: int, total: int | None, values: Mapping[str, float], seconds_left: float | None) -> str | None:
    """A step in one line; None where it has nothing to show.

    Args:
        values: metrics by verl's names.
    """
    parts = [f"{label} {values[name]:{form}}" for label, name, form in _SHOWN_METRICS if name in values]
    for name in sorted(values):
        if match := _VALIDATION.fullmatch(name):
            label = "validation loss" if match[1] is None else f"held-out accuracy ({match[1]})"
            parts.append(f"{label} {values[name]:.3f}")
    if not parts:
        return None
    if (seconds := values.get("perf/time_per_step") or values.get("timing_s/step")) is not None:
        parts.append(f"{seconds:.0f} s")
    if seconds_left is not None and step != total:
        parts.append(f"{_duration(seconds_left)} left")
    return f"step {step}{'' if total is None else f'/{total}'}  " + ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
