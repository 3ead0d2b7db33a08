"""`vvt data export-hf`: recorded rollouts as a Hugging Face dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.options import command
from verl_video_tools.cli.progress import progress_bars


@command
class ExportHF:
    """Write recorded rollouts with frames for Hugging Face. `datasets.load_dataset` reads the folder."""

    records: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run or of its trajectories, or one file of records.")
    ]
    out: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Folder to make: parquet files and a card.")]
    images: Annotated[bool, typer.Option("--images/--no-images", help="With the frames that were shown.")] = True
    side_pixels: Annotated[int, typer.Option(min=16, help="Longer side of an image at most.")] = 256

    def run(self) -> None:
        from verl_video_tools.data.export_hf import export_hf

        with progress_bars("rollouts") as (advance,):
            report = export_hf(
                self.records,
                self.out,
                images=self.images,
                side_pixels=self.side_pixels,
                exported=lambda count: advance(count, count),
            )
        counts = ", ".join(f"{count} rollouts in {split}" for split, count in report.num_rollouts.items())
        print(f"{self.out}: {counts}, {report.num_images} images; datasets.load_dataset({str(self.out)!r}) reads it")
        if report.notes:
            print(f"videos without images: {len(report.notes)}, for example {next(iter(report.notes.values()))}")
