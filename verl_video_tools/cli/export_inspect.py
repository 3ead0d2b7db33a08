"""`vvt data export-inspect`: recorded rollouts as a log of Inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite
from verl_video_tools.cli.options import command
from verl_video_tools.cli.progress import progress_bars


@command
class ExportInspect:
    """Write rollouts as a log of Inspect. `inspect view` opens it."""

    records: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run or of its trajectories, or one file of records.")
    ]
    out: Annotated[Path, typer.Argument(metavar="LOG_DIR", help="Folder of logs to write to.")]
    model: Annotated[str | None, typer.Option(help="Name of the model; default: the run's folder.")] = None
    max_rollouts: Annotated[
        int, typer.Option(min=1, help="Rollouts in the log; of more, groups of the last steps.")
    ] = 500
    images: Annotated[bool, typer.Option("--images/--no-images", help="With the frames that were shown.")] = True
    side_pixels: Annotated[int, typer.Option(min=16, help="Longer side of an image at most.")] = 256
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.export_inspect import export_inspect

        with progress_bars("rollouts") as (advance,):
            path, count, left_out = export_inspect(
                self.records,
                self.out,
                model=self.model,
                max_rollouts=self.max_rollouts,
                side_pixels=self.side_pixels if self.images else None,
                overwrite=self.overwrite,
                exported=advance,
            )
        print(f"{path}: {count} rollouts" + (f", {left_out} left out (--max-rollouts)" if left_out else ""))
        print(f"inspect view --log-dir {self.out} shows it")
