"""`vvt data validate`: reads the options, runs `validate_file`, tells what is bad."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import Probing, command
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError


@command
class Validate(Probing):
    """Check fields, files and truths of rows, without decoding. Exits with 1 if any row is bad, or there is none."""

    source: Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Rows to check.")]
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
    min_pixels: Annotated[
        int | None, typer.Option(help="With --processor: data.mm_processor_kwargs.min_pixels of the run.")
    ] = None
    max_pixels: Annotated[
        int | None, typer.Option(help="With --processor: data.mm_processor_kwargs.max_pixels of the run.")
    ] = None
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
        videos = None
        if self.probe or self.processor is not None:
            videos = self.probe_videos(self.source)
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
