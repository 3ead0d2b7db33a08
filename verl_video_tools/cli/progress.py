"""Progress of long commands, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

SECONDS_BETWEEN_LINES = 30.0
"""Where standard error is a file, as under Slurm and nohup."""


class Advance(Protocol):
    def __call__(self, num_done: int, num_wanted: int, note: str = "") -> None:
        """
        Args:
            note: further text, such as the accuracy so far.
        """


@contextmanager
def progress_bars(*names: str) -> Iterator[Sequence[Advance]]:
    """A bar with the time left for each name, or lines where standard error is no terminal; gives functions to call
    with the number done and the number wanted."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        with progress_lines(*names) as lines:
            yield lines
        return
    shown = Progress.get_default_columns()[:2]
    columns = (*shown, MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:

        def bar(task: TaskID) -> Advance:
            def advance(num_done: int, num_wanted: int, note: str = "") -> None:
                progress.update(task, completed=num_done, total=num_wanted, note=note)

            return advance

        yield [bar(progress.add_task(name, total=None, note="")) for name in names]


@contextmanager
def progress_lines(*names: str, now: Callable[[], float] = time.monotonic) -> Iterator[Sequence[Advance]]:
    """As `progress_bars`, in lines such as `eval: 120/3000, accuracy 0.617, 0:25:10 left`: one for each name every 30
    seconds while it gets on, and one in the end for how far it got.

    Args:
        now: a clock, in seconds.
    """
    lines = [_Line(name, now) for name in names]
    try:
        yield [line.advance for line in lines]
    finally:
        for line in lines:
            line.end()


class _Line:
    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self._name = name
        self._now = now
        self._has_begun = False
        self._num_done = self._num_wanted = self._first_done = 0
        self._begin = self._printed_at = 0.0
        self._note = self._last = ""

    def advance(self, num_done: int, num_wanted: int, note: str = "") -> None:
        if not self._has_begun:
            self._has_begun = True
            self._begin = self._printed_at = self._now()
            self._first_done = num_done  # by an earlier run: says nothing about the time left
        self._num_done, self._num_wanted, self._note = num_done, num_wanted, note
        if self._now() - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._print()

    def end(self) -> None:
        if self._has_begun:
            self._print()

    def _print(self) -> None:
        self._printed_at = self._now()
        line, num_made = f"{self._name}: {self._num_done}/{self._num_wanted}", self._num_done - self._first_done
        if self._note:
            line += f", {self._note}"
        if num_made > 0 and self._num_done < self._num_wanted:
            seconds_left = (self._printed_at - self._begin) / num_made * (self._num_wanted - self._num_done)
            line += f", {timedelta(seconds=round(seconds_left))} left"
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
        self._last = line
