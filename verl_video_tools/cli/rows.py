"""Commands about rows and their videos: `vvt data validate`, `stats`, `split`, `filter`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import (
    MaxPixels,
    MinPixels,
    Rows,
    command,
    listed,
    probe_videos,
)
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError


@command
class Validate:
    """Check fields, files and truths of rows, without decoding. Exits with 1 if any row is bad, or there is none."""

    source: Rows
    out: Annotated[Path | None, typer.Option(help="Parquet file to write: the good rows.")] = None
    report: Annotated[Path | None, typer.Option(help="File to write: one JSON object per row.")] = None
    probe: Annotated[bool, typer.Option("--probe", help="Also open every video.")] = False
    processor: Annotated[
        str | None,
        typer.Option(help="Folder of a model's processor: also count the tokens of every prompt; opens the videos."),
    ] = None
    method: Annotated[str | None, typer.Option(help="Method of rows that name none in agent_name.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="[METHOD.]FIELD=VALUE", help="Field of the method, as in the run; repeatable."),
    ] = None
    min_pixels: MinPixels = None
    max_pixels: MaxPixels = None
    max_prompt_length: Annotated[
        int | None,
        typer.Option(min=1, help="With --processor: data.max_prompt_length of the run; default: the recipe's."),
    ] = None
    max_images: Annotated[
        int | None, typer.Option(min=1, help="With --processor: images that a rollout may have; default: the recipe's.")
    ] = None
    overwrite: Overwrite = False

    def run(self) -> int:
        from verl_video_tools.data.validate import PromptCosts, RowMethods, validate_file

        check_outputs(rows=(self.out,), texts=(self.report,), sources=(self.source,), overwrite=self.overwrite)
        of_prompts = {
            "--min-pixels": self.min_pixels,
            "--max-pixels": self.max_pixels,
            "--max-prompt-length": self.max_prompt_length,
            "--max-images": self.max_images,
        }
        for name, value in of_prompts.items():
            if self.processor is None and value:
                raise UsageError(f"{name} says what a prompt holds or may hold; it needs --processor")
        methods = RowMethods(self.method, read_assignments(self.settings or []))
        costs = None
        if self.processor is not None:
            from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

            model = load_model_tokens(self.processor, {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels})
            costs = PromptCosts(model, methods, self.max_prompt_length, self.max_images)
        videos = probe_videos(self.source) if self.probe or self.processor is not None else None
        num_rows = num_bad = 0
        prompt_tokens: list[int] = []
        with ExitStack() as stack:
            try:
                lines = None if self.report is None else stack.enter_context(self.report.open("w", encoding="utf-8"))
            except OSError as error:
                raise UsageError(f"--report {self.report}: {error.strerror}") from error
            for row in validate_file(self.source, methods=methods, out=self.out, videos=videos, costs=costs):
                num_rows += 1
                num_bad += bool(row.problems)
                if row.cost is not None:
                    prompt_tokens.append(row.cost.tokens)
                if lines is not None:
                    lines.write(json.dumps(asdict(row)) + "\n")
                for problem in row.problems:
                    typer.echo(f"row {row.number}: {problem}", err=True)
        print(f"{self.source}: {num_rows} rows, {num_bad} bad")
        if prompt_tokens:
            ordered = sorted(prompt_tokens)
            print(f"tokens of prompts: median {ordered[len(ordered) // 2]}, most {ordered[-1]}")
        return int(num_bad > 0)


@command
class Stats:
    """Count rows by source, method, type, options and answer."""

    source: Rows
    probe: Annotated[bool, typer.Option("--probe", help="Also open the videos, for their lengths.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False

    def run(self) -> None:
        from verl_video_tools.data.stats import row_stats

        counts = row_stats(self.source, probe_videos(self.source) if self.probe else None)
        if self.as_json:
            print(json.dumps(counts))
            return
        for name, value in counts.items():
            if value or name == "rows":
                print(f"{name}: {listed(value)}")


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
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.difficulty import filter_rows, pass_rates_of_records

        sources = (self.in_parquet, self.records)
        check_outputs(rows=(self.out_parquet,), sources=sources, overwrite=self.overwrite)
        if self.records is None and not self.band_seconds:
            raise UsageError("nothing to choose by: give --records, --band-seconds, or both")
        rates = None if self.records is None else pass_rates_of_records(self.records)
        report = filter_rows(self.in_parquet, self.out_parquet, rates, band_seconds=self.band_seconds or ())
        print(f"{self.out_parquet}: {report}")
