"""`vvt eval-table`: results side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.options import command


@command
class EvalTable:
    """Set results side by side: tables, and accuracy against frames as a plot."""

    results: Annotated[list[Path], typer.Argument(help="Folders that `vvt eval` wrote.")]
    out: Annotated[Path, typer.Option(help="Folder for table.md, table.csv, table.json and accuracy_frames.png.")]

    def run(self) -> None:
        from verl_video_tools.evaluation.run import read_result
        from verl_video_tools.evaluation.tables import write_plot, write_tables

        read = {name: read_result(path) for name, path in _names(self.results).items()}
        print(write_tables(read, self.out))
        write_plot(read, self.out)


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Paths by the last part of their names that tells them apart: the folder's name, or the whole path."""
    names = [path.resolve().name for path in paths]
    return {str(path) if names.count(name) > 1 else name: path for name, path in zip(names, paths, strict=True)}
