"""What `vvt train` shows of a run whose own output goes to a file: a line per step, our messages, and how it failed.

A run of verl prints thousands of lines from a dozen processes. They go to a log, and this shows what a user reads: a
line for each step, from the one that verl's console logger writes; lines that this package has written for the user,
its warnings among them (`verl_plugin.marked_warnings`); and after a failure the end of the log without the lines of
`NOISE`. With VERBOSE=1 every line is shown, and in the file as well.

A thread of its own shows them, so that a reader who has stopped (a pipe to `less`) keeps nobody from the run's signals:
the log holds what he has not taken yet. Nothing that fails here ends the run.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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
_PAUSE_SECONDS = 10.0
"""Between lines of steps, where steps are shorter: fine-tuning takes hundreds of a second each."""
_SECONDS_WITHOUT_STEP = 60.0
"""After which a line says what a long step is doing."""
_SAME_WARNINGS = 3
"""Shown of those that differ in numbers and files only: a broken file can warn with every rollout."""
_LOOK_SECONDS = 0.2
"""How often to look for new lines."""
_SECONDS_FOR_THE_REST = 5.0
"""For a reader to take anything of what is left when the run is over; who takes nothing finds the rest in the log."""
_ENDED_BY_SIGNAL = (129, 130, 143)
"""Exit codes of a run that a signal has ended."""

NOISE = {
    r"target_num_threads \d+ should not exceed": "TransferQueue takes as many threads as there are cores",
    r"R?otaryEmbedding: Failed to load weights": "vLLM reloads weights by layer; position embeddings have none",
    r"UserWarning: The given NumPy array is not writ": "torch about a read-only view, which is only read",
    r"\[Performance\]|Per-operation statistics|Time range: last": "TransferQueue's counters, every few minutes",
    r"FutureWarning|DeprecationWarning|is deprecated!": "for the authors of verl and vLLM, not for who trains",
    r"\w+ engine is not available: |warnings\.warn\(": "verl about engines that are not installed",
    r"Error executing job with overrides: |Set the environment variable HYDRA_FULL_ERROR": "Hydra about every error",
    r"No CUDA runtime is found|Disabling Triton": "torch and vLLM on a machine without a GPU",
    r"Enforce eager set|Inductor compilation was disabled|LoRA dynamic loading": "vLLM about options that verl sets",
    r"model_hosting_container_standards": "a hosting service's handlers, which vLLM's server looks for",
    r"is_fx_tracing will return true": "torch about its own functions",
    r"Using blocking ray\.get inside async actor": "Ray about verl's trainer, which waits on purpose",
    r"(^|\s)[~^]+\s*$": "marks below a line of a traceback",
    r"^step:\d+ - |Training Progress: |Writing model shards: |Loading weights: ": "progress, which lines of steps show",
}
"""Patterns of framework output that is of no use to the user, each with its reason. It stays in the log."""

LINES_OF_FAILURE = 30
ERRORS_OF_FAILURE = 5
_LONGEST_LINE = 400
_CHUNK_BYTES = 1 << 20

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PROCESS = re.compile(r"^(?:\((?:\w+ )?pid=\d+(?:, ip=[\da-f.:]+)?\) ?)+")
_PLACE = re.compile(r"^(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]+:\d+\] ?")
"""vLLM's beginning of every line of a traceback."""
_RANK = re.compile(r"^\[rank\d+\]: ?")
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*$")
_NOISE = re.compile("|".join(NOISE))
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:\(\w+\))?(?:: .*)?")
"""The last line of a traceback."""
_RAY_S_OWN = re.compile(r"ray\.exceptions\.(?:RayTaskError|ActorDiedError|ActorUnavailableError|RayActorError)\b")
"""Raised in the driver for whatever was raised elsewhere."""

_NUMBER = re.compile(r"(.+):(?:np\.\w+\()?([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|-?inf)\)?")

_TRAINING = (
    ("reward", "rollout/score/mean", ".3f"),
    ("accuracy", "rollout/acc/mean", ".3f"),
    ("calls", "tool/executed_per_rollout", ".2f"),
    ("frames", "frames/total/mean", ".1f"),
    ("flagged", "rollout/flagged", ".0f"),
)
_FINE_TUNING = (("loss", "train/loss", ".4f"), ("learning rate", "train/lr", ".1e"))
_VALIDATION = re.compile(r"val-core/(.+)/acc/mean@\d+|val/loss")


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
        self._log_tail = Tail(log)
        self._start = self._log_tail.place
        self._total: int | None = None
        self._first: tuple[int, float] | None = None
        self._shown_at = time.monotonic()
        self._num_shown = 0
        self._unshown: str | None = None
        self._warnings: Counter[str] = Counter()
        self._has_failed = False
        self._returncode = 0
        self._is_over = Event()
        self._thread = Thread(target=self._show_all, name="console", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, returncode: int) -> None:
        """Let the rest be shown, and after a failure the end of the log."""
        self._returncode = returncode
        self._is_over.set()
        before = -1
        while self._thread.is_alive() and before != self._num_shown:
            before = self._num_shown
            self._thread.join(_SECONDS_FOR_THE_REST)

    def _show_all(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self.show_new_lines()
        self.show_rest(self._returncode)

    def show_new_lines(self, *, with_unfinished: bool = False) -> None:
        """What has come since the last call; it takes as long as the reader does."""
        for line in self._log_tail.new_lines(with_unfinished=with_unfinished):
            try:
                self._follow(line)
            except Exception as error:  # a line that nobody foresaw
                if not self._has_failed:
                    self._show(f"{MARK} a line of {self.log} could not be shown ({error!r}); the run goes on")
                self._has_failed = True

    def show_rest(self, returncode: int) -> None:
        """The last lines, and after a failure the end of the log."""
        self.show_new_lines(with_unfinished=True)
        if self._unshown is not None:
            self._show(self._unshown)
        if returncode == 0 or returncode in _ENDED_BY_SIGNAL or self.verbose:
            return
        try:
            errors, last = end_of_log(self.log, self._start)
        except OSError as error:
            errors, last = [], [f"cannot be read: {error}"]
        if errors:
            self._show(f"{MARK} errors in {self.log}:")
            for line in errors:
                self._show(f"  {line}")
        self._show(f"{MARK} failed with exit code {returncode}; the end of {self.log}:")
        for line in last:
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
        if _WARNING.match(text):
            self._warn(text)
            return
        self._show(text)

    def _warn(self, text: str) -> None:
        kind = re.sub(r"\d+", "0", re.sub(r"\S*/\S*", "/", text))
        self._warnings[kind] += 1
        if self._warnings[kind] < _SAME_WARNINGS:
            self._show(text)
        elif self._warnings[kind] == _SAME_WARNINGS:
            self._show(f"{text} (further warnings of this kind are in the log only)")

    # ------------------------------------------------------------------------------------------------------------ steps

    def _step(self, step: int, values: Mapping[str, float]) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
        line = step_line(step, self._total, values, self._seconds_left(step, now))
        if line is None:
            return
        if now - self._shown_at >= _PAUSE_SECONDS or step == self._total or has_validation(values):
            self._show(line)
        else:
            self._unshown = line

    def _seconds_left(self, step: int, now: float) -> float | None:
        """By the mean of the steps since the first one that was seen."""
        if self._total is None or self._first is None or step <= self._first[0]:
            return None
        first, began = self._first
        return max(0.0, (now - began) / (step - first) * (self._total - step))

    def _show(self, line: str) -> None:
        self._shown_at, self._unshown = time.monotonic(), None
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


# ----------------------------------------------------------------------------------------------------------- the log


class Tail:
    """Reads what is appended to a file, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = path.stat().st_size if path.exists() else 0
        """Bytes that have been read, or were there before."""

    def new_lines(self, *, with_unfinished: bool = False) -> Iterator[str]:
        """Those that have come since the last call.

        Args:
            with_unfinished: also a last line whose end is missing, of a process that is gone.
        """
        try:
            size = self._path.stat().st_size
            if size < self.place:  # it was emptied
                self.place = 0
            if size == self.place:
                return
            with self._path.open("rb") as file:
                file.seek(self.place)
                for line in file:
                    if not (line.endswith(b"\n") or with_unfinished):
                        return
                    self.place += len(line)
                    yield line.decode(errors="replace").rstrip("\n")
        except OSError:  # not there yet, or not any more
            return


def clean(line: str) -> str:
    """A line without colours, without what a progress bar has overwritten, and without the process that it is from."""
    line = line.rstrip().rpartition("\r")[2]
    return _REPEATED.sub("", _RANK.sub("", _PROCESS.sub("", _COLOUR.sub("", line)))).rstrip()


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
    kept: list[str] = []
    for line in map(clean, text.splitlines()):
        if line and not line.startswith(MARK) and not _NOISE.search(line) and line not in kept[-3:]:
            kept.append(line[:_LONGEST_LINE])
    last = kept[-LINES_OF_FAILURE:]
    earlier = [_PLACE.sub("", line) for line in kept[:-LINES_OF_FAILURE]]
    raised = [line for line in earlier if _RAISED.fullmatch(line) and not _RAY_S_OWN.match(line)]
    errors = [line for line in dict.fromkeys(reversed(raised)) if line not in last][:ERRORS_OF_FAILURE]
    return errors[::-1], last


# --------------------------------------------------------------------------------------------------------------- steps


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


def has_validation(values: Mapping[str, float]) -> bool:
    return any(map(_VALIDATION.fullmatch, values))


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes} min" if seconds >= 60 else f"{round(seconds)} s"
