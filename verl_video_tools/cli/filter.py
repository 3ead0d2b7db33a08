"""`vvt data filter`: rows of medium difficulty, balanced by video length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import command
from verl_video_tools.core.errors import UsageError


@command
class Filter:
    """Keep rows of medium difficulty, balanced by video length. Drops what all rollouts, or none, answered."""

    in_parquet: Annotated[Path, typer.Argument(help="Rows for reinforcement learning.")]
    out_parquet: Annotated[Path, typer.Argument(help="File to write.")]
    records: Annotated[
        Path | None, typer.Option(help="Recorded rollouts of these rows: folder of a run, or a .jsonl file.")
    ] = None
    band_seconds: Annotated[
        list[float] | None,
        typer.Option(help="Bound between bands of video length to balance, such as 180; repeatable, ascending."),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed for the choice within a band.")] = 0
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.difficulty import filter_rows, pass_rates_of_records

        sources = (self.in_parquet, self.records)
        check_outputs(rows=(self.out_parquet,), sources=sources, overwrite=self.overwrite)
        if self.records is None and not self.band_seconds:
            raise UsageError("nothing to choose by: give --records, --band-seconds, or both")
        rates = None if self.records is None else pass_rates_of_records(self.records)
        report = filter_rows(
            self.in_parquet, self.out_parquet, rates, band_seconds=self.band_seconds or (), seed=self.seed
        )
        print(f"{self.out_parquet}: {report}")
