"""Progress of long commands, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

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
    """A bar with the time left for each name, drawn anew every 30 seconds where standard error is no terminal; gives
    functions to call with the number done and the number wanted. A bar appears with its first call."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    is_terminal = sys.stderr.isatty()
    bars: dict[str, Any] = {}

    def advance(name: str, num_done: int, num_wanted: int, note: str = "") -> None:
        if name not in bars:  # what an earlier run has done says nothing about the time left
            interval, place = (0.1, None) if is_terminal else (SECONDS_BETWEEN_LINES, 0)
            bar = tqdm(desc=name, total=num_wanted, initial=num_done, miniters=1, mininterval=interval, position=place)
            bars[name] = stack.enter_context(bar)
        bars[name].total = num_wanted
        bars[name].set_postfix_str(note, refresh=False)
        bars[name].update(num_done - bars[name].n)

    with ExitStack() as stack:
        yield [partial(advance, name) for name in names]
