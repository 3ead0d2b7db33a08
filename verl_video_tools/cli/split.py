"""`vvt data split`: two files of rows without a common video."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import Rows, command


@command
class Split:
    """Split rows so that no video is in both files."""

    source: Rows
    first: Annotated[Path, typer.Argument(metavar="TRAIN.parquet", help="File for most rows.")]
    second: Annotated[Path, typer.Argument(metavar="TEST.parquet", help="File for the others.")]
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the rows that the second file gets.")] = 0.1
    seed: Annotated[int, typer.Option(help="Seed for the choice of videos.")] = 0
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.subsets import split_by_video

        check_outputs(rows=(self.first, self.second), sources=(self.source,), overwrite=self.overwrite)
        split = split_by_video(self.source, self.first, self.second, second_share=self.share, seed=self.seed)
        for path, num_rows, num_videos in zip((self.first, self.second), split.num_rows, split.num_videos, strict=True):
            print(f"{path}: {num_rows} rows on {num_videos} videos")
