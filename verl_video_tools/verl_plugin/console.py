"""What a recipe prints of a run whose own output goes to a file: a line per step, our messages, and how it failed.

A run of verl prints thousands of lines from a dozen processes. `supervise --log FILE` sends them to that file, and this
shows what a user reads: a line for each step, from the one that verl's console logger writes; lines that this package
has written for the user, its warnings among them (`marked_warnings`); and after a failure the end of the log without
the lines of `log_lines.NOISE`. With VERBOSE=1 every line is shown, and in the file as well.

Nothing that fails here ends the run.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from verl_video_tools.verl_plugin.log_lines import MARK, Tail, clean, end_of_log
from verl_video_tools.verl_plugin.patient_output import PatientOutput
from verl_video_tools.verl_plugin.step_lines import has_validation, metrics, step_line

_TOTAL = re.compile(r"[Tt]otal(?: training)? steps: (\d{1,18})\b")
_STEP = re.compile(r"step:(\d{1,18}) - (.+)$")
"""Of verl's console logger; a progress bar may stand before it."""
_PROGRESS = re.compile(rf"{re.escape(MARK)} step (\d+)(?:/(\d+))?(?:: (.*))?$")
_WARNING = re.compile(rf"{re.escape(MARK)} (?:warning|error|critical): ")
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _LINES_OF_SHORT_STEPS = 10.0, 60.0, 20
"""Between lines of steps, where steps are shorter: fine-tuning takes hundreds of a second each."""
_SECONDS_WITHOUT_STEP = 60.0
"""After which a line says what a long step is doing."""
_SAME_WARNINGS = 3
"""Shown of those that differ in numbers and files only: a broken file can warn with every rollout."""
_SECONDS_FOR_THE_REST = 5.0
"""For a reader to take anything of what is left when the run is over; who takes nothing finds the rest in the log."""
_ENDED_BY_SIGNAL = (129, 130, 143)
"""Exit codes of a run that was asked to end."""


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
        self._log_tail = Tail(self.log)
        self._start = self._log_tail.place
        self._total: int | None = None
        self._first: tuple[int, float] | None = None
        self._shown_at = time.monotonic()
        self._unshown: str | None = None
        self._warnings: Counter[str] = Counter()
        self._has_failed = False
        self._output = PatientOutput(sys.stdout if self.stream is None else self.stream)

    def update(self) -> None:
        """Show what has come since."""
        self._output.flush()
        self._follow_all(with_unfinished=False, patience_seconds=0.0)

    def end(self, returncode: int) -> None:
        """Show the rest, and after a failure the end of the log."""
        self._follow_all(with_unfinished=True, patience_seconds=_SECONDS_FOR_THE_REST)
        if self._unshown is not None:
            self._show(self._unshown)
        self._explain(returncode)
        self._output.flush(_SECONDS_FOR_THE_REST)

    def _explain(self, returncode: int) -> None:
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

    def _follow_all(self, with_unfinished: bool, patience_seconds: float) -> None:
        """As far as the reader follows: what comes after that stays in the log until the next call."""
        lines = self._log_tail.new_lines(with_unfinished=with_unfinished)
        while self._output.has_room(patience_seconds) and (line := next(lines, None)) is not None:
            try:
                self._follow(line)
            except Exception as error:  # a line that nobody foresaw
                if not self._has_failed:
                    self._show(f"{MARK} a line of {self.log} could not be shown ({error!r}); the run goes on")
                self._has_failed = True

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
        if now - self._shown_at >= self._pause_seconds(step, now) or step == self._total or has_validation(values):
            self._show(line)
        else:
            self._unshown = line

    def _seconds_per_step(self, step: int, now: float) -> float | None:
        """Mean of the steps since the first one that was seen."""
        if self._first is None or step <= self._first[0]:
            return None
        return (now - self._first[1]) / (step - self._first[0])

    def _seconds_left(self, step: int, now: float) -> float | None:
        seconds = self._seconds_per_step(step, now)
        return None if self._total is None or seconds is None else max(0.0, seconds * (self._total - step))

    def _pause_seconds(self, step: int, now: float) -> float:
        """Longer where many short steps are to come; every step of ten seconds or more has its line."""
        seconds = self._seconds_per_step(step, now)
        if self._total is None or seconds is None or seconds >= _SHORTEST_PAUSE_SECONDS:
            return _SHORTEST_PAUSE_SECONDS
        shared = seconds * self._total / _LINES_OF_SHORT_STEPS
        return min(max(shared, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)

    # ----------------------------------------------------------------------------------------------------------- output

    def _show(self, line: str) -> None:
        self._shown_at, self._unshown = time.monotonic(), None
        self._output.write_line(line)
