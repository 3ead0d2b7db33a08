"""`vvt data export-rft`: rows with turns from a policy's own good rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.export_sft import KeepReasoning, MinAccuracy, MinIoU, WellFormed
from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import command
from verl_video_tools.core.errors import UsageError


@command
class ExportRFT:
    """Write a policy's own good rollouts as rows. Rows of the cold start can be mixed in."""

    records: Annotated[
        Path, typer.Argument(help="Recorded rollouts: folder of a run or of its trajectories, or a .jsonl file.")
    ]
    out_parquet: Annotated[Path, typer.Argument(help="File to write: rows with turns, as export-sft writes them.")]
    min_accuracy: MinAccuracy = None
    min_iou: MinIoU = 0.3
    well_formed: WellFormed = False
    min_step: Annotated[int | None, typer.Option(help="First step to take rollouts from; default: the first.")] = None
    max_step: Annotated[int | None, typer.Option(help="Last step to take rollouts from; default: the last.")] = None
    cold_start: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Rows with turns of the cold start, to be mixed in; repeatable."),
    ] = None
    cold_share: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Largest share of cold-start rows among all rows; default: 0.94, as published."
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed for the choice of cold-start rows.")] = 0
    keep_reasoning: KeepReasoning = False
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.export_rollouts import COLD_SHARE, export_rollouts

        sources = (self.records, *(self.cold_start or ()))
        check_outputs(rows=(self.out_parquet,), sources=sources, overwrite=self.overwrite)
        if self.cold_share is not None and not self.cold_start:
            raise UsageError("--cold-share needs --cold-start FILE")
        report = export_rollouts(
            self.records,
            self.out_parquet,
            min_accuracy=self.min_accuracy,
            min_iou=self.min_iou,
            well_formed=self.well_formed,
            min_step=self.min_step,
            max_step=self.max_step,
            cold_start=self.cold_start or (),
            cold_share=COLD_SHARE if self.cold_share is None else self.cold_share,
            seed=self.seed,
            keep_reasoning=self.keep_reasoning,
        )
        print(f"{self.out_parquet}: {report}")
