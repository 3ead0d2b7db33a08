"""`vvt data convert --from table`: shows what a table is taken for, asks, and writes its rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.data.convert import Conversion

_WIDTH = 140
"""Of what is shown where standard output is no terminal."""


def convert_table(
    source: Path,
    target: Path,
    *,
    assignments: Sequence[str],
    videos: Path | None,
    method: str | None,
    split: str | None,
    yes: bool,
) -> Conversion:
    """Write the rows of a table once the user agrees.

    Args:
        assignments: texts of `--map`.
        yes: do not ask.

    Raises:
        UsageError: the table cannot be read, no column is found for a needed field, no row is good, or the user does
            not agree or cannot be asked.
    """
    from rich.console import Console

    from verl_video_tools.data.convert import convert_annotations
    from verl_video_tools.data.formats import BenchmarkFiles
    from verl_video_tools.data.table.columns import find_columns
    from verl_video_tools.data.table.files import open_table
    from verl_video_tools.data.table.reader import Table, show

    if videos is not None and not videos.is_dir():
        raise UsageError(f"{videos}: no such folder")
    table = open_table(source, split)
    reader = Table(table, find_columns(table, assignments), videos)
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    if show(reader, console) and not yes:
        _ask(target)
    files = BenchmarkFiles(annotations=source, videos=videos)
    return convert_annotations(reader, files, target, method_name=method, split=split)


def _ask(target: Path) -> None:
    """Raises UsageError if the answer is not yes, or there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was written, as standard input is no terminal to ask at: add --yes if the columns above are "
            "right, or name others with --map FIELD=COLUMN"
        )
    try:
        answer = input(f"Write the rows to {target}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was written; name other columns with --map FIELD=COLUMN")
