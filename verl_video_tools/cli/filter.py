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
    pass_rates: Annotated[
        Path | None, typer.Option(help="Instead: JSON lines with video_path, question and pass_rate.")
    ] = None
    band_seconds: Annotated[
        list[float] | None,
        typer.Option(help="Bound between bands of video length to balance, such as 180; repeatable, ascending."),
    ] = None
    rows_per_band: Annotated[
        int | None, typer.Option(min=1, help="Most rows of a band; default: as many as the median band has.")
    ] = None
    seed: Annotated[int, typer.Option(help="Seed for the choice within a band.")] = 0
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.difficulty import filter_rows, pass_rates_of_file, pass_rates_of_records

        sources = (self.in_parquet, self.records, self.pass_rates)
        check_outputs(rows=(self.out_parquet,), sources=sources, overwrite=self.overwrite)
        if self.records is not None and self.pass_rates is not None:
            raise UsageError("give either --records or --pass-rates")
        if self.records is None and self.pass_rates is None and not self.band_seconds:
            raise UsageError("nothing to choose by: give --records or --pass-rates, --band-seconds, or both")
        rates = pass_rates_of_records(self.records) if self.records is not None else None
        if self.pass_rates is not None:
            rates = pass_rates_of_file(self.pass_rates)
        report = filter_rows(
            self.in_parquet,
            self.out_parquet,
            rates,
            band_seconds=self.band_seconds or (),
            rows_per_band=self.rows_per_band,
            seed=self.seed,
        )
        print(f"{self.out_parquet}: {report}")
