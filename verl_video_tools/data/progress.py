"""Progress of long commands, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def progress_bars(*names: str) -> Iterator[Sequence[Callable[[int, int], None]]]:
    """A bar with the time left for each name; gives functions to call with the number done and the number wanted."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def bar(task: TaskID) -> Callable[[int, int], None]:
            return lambda num_done, num_wanted: progress.update(task, completed=num_done, total=num_wanted)

        yield [bar(progress.add_task(name, total=None)) for name in names]
