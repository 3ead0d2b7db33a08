"""`vvt eval-table`: results side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import command


@command
class EvalTable:
    """Compare evaluations: tables, paired differences and plots."""

    results: Annotated[list[Path], typer.Argument(help="Folders that `vvt eval` wrote.")]
    out: Annotated[Path, typer.Option(help="Folder for table.md, table.csv, paired.json and the plots.")]
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.evaluation.comparison import (
            PAIRED,
            compare,
            comparison_table,
            write_comparisons,
        )
        from verl_video_tools.evaluation.items import read_items
        from verl_video_tools.evaluation.plots import PLOTS, write_plots
        from verl_video_tools.evaluation.run import read_result
        from verl_video_tools.evaluation.tables import TABLES, write_tables

        names = (*TABLES, PAIRED, *PLOTS)
        check_outputs(texts=(self.out / name for name in names), overwrite=self.overwrite)
        paths = _names(self.results)
        read = {name: read_result(path) for name, path in paths.items()}
        comparisons = compare({name: read_items(path) for name, path in paths.items()})
        print(write_tables(read, self.out, [comparison_table(comparisons)]))
        if comparisons:
            write_comparisons(comparisons, self.out)
        write_plots(read, self.out)


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Paths by the last part of their names that tells them apart: the folder's name, or the whole path."""
    names = [path.resolve().name for path in paths]
    return {str(path) if names.count(name) > 1 else name: path for name, path in zip(names, paths, strict=True)}
