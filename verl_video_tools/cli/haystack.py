"""`vvt data haystack`: reads the options, runs the steps, and prints what became of the questions."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.files import check_outputs
from verl_video_tools.cli.options import APIKeyEnv, Model, command, config_from
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError, VideoError

if TYPE_CHECKING:
    from verl_video_tools.data.haystack.estimate import StepCost
    from verl_video_tools.data.haystack.pipeline import Outcome

URL = Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of this model, if it is another one.")]


@command
class Haystack:
    """Write questions about single moments of long videos. Exits 1 if none is left."""

    videos: Annotated[
        Path, typer.Argument(help="A folder, a .txt list of paths, rows (.parquet, .jsonl), or one video file.")
    ]
    out: Annotated[
        Path, typer.Argument(help="Folder of the run: rows.parquet and a file per step; a run in it is continued.")
    ]
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="OpenAI-compatible endpoint of a model that sees pictures.")
    ] = None
    model: Model = None
    writer_url: URL = None
    writer_model: Model = None
    checker_url: URL = None
    checker_model: Model = None
    estimate: Annotated[bool, typer.Option("--estimate", help="Print the estimated cost and stop.")] = False
    input_price: Annotated[float, typer.Option(min=0.0, help="Price of a million input tokens.")] = 0.0
    output_price: Annotated[float, typer.Option(min=0.0, help="Price of a million output tokens.")] = 0.0
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Override an option; repeatable.")
    ] = None
    jobs: Annotated[int | None, typer.Option(min=1, help="Videos scanned at a time; default: the CPU count.")] = None
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 16
    deadline_seconds: Annotated[
        float, typer.Option(min=0.1, help="Time for one reply with all its attempts, in seconds.")
    ] = 600.0
    max_attempts: Annotated[int, typer.Option(min=1, help="Attempts at a usable reply.")] = 4
    jpeg_quality: Annotated[int | None, typer.Option(min=1, max=95, help="Quality of the pictures sent.")] = 90
    api_key_env: APIKeyEnv = "VVT_API_KEY"
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat what failed.")] = False

    def run(self) -> int:
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.core.config import checked_fields
        from verl_video_tools.data.haystack.config import HaystackConfig, claim
        from verl_video_tools.data.haystack.estimate import estimate as estimate_costs
        from verl_video_tools.data.haystack.models import Models, prompts_digest
        from verl_video_tools.data.haystack.pipeline import (
            STEPS,
            failures,
            find_parts,
            make_questions,
            short_videos,
        )
        from verl_video_tools.data.haystack.rows import write_rows
        from verl_video_tools.data.probe_files import find_videos
        from verl_video_tools.services.endpoint import EndpointClient, EndpointConfig

        if not (self.out / "config.json").exists():  # else the folder of such a run, which goes on there
            check_outputs(rows=(self.out / "rows.parquet",))
        config = HaystackConfig(**checked_fields(HaystackConfig, read_assignments(self.settings or [])))
        paths = find_videos(self.videos)
        if self.base_url is None and not self.estimate:
            raise UsageError("--base-url is missing: name the endpoint of the models, or ask for an --estimate first")
        claim(self.out, {**asdict(config), "prompts": prompts_digest()})

        def endpoint(url: str | None, name: str | None) -> EndpointConfig:
            model = name or (self.model if url is None else None)
            return config_from(EndpointConfig, self, base_url=url or self.base_url, model=model)

        async def ask(progress: Sequence[Any]) -> Outcome:
            async with AsyncExitStack() as stack:
                captioner, writer, checker = [
                    await stack.enter_async_context(EndpointClient(endpoint(url, name)))
                    for url, name in (
                        (self.base_url, self.model),
                        (self.writer_url, self.writer_model),
                        (self.checker_url, self.checker_model),
                    )
                ]
                return await make_questions(
                    scenes,
                    self.out,
                    config,
                    Models(captioner, writer, checker, self.jpeg_quality),
                    concurrency=self.concurrency,
                    retry_failed=self.retry_failed,
                    progress=progress,
                )

        with progress_bars(STEPS[0]) as (scanned,):
            scenes = asyncio.run(
                find_parts(paths, self.out, config, self.jobs or os.cpu_count() or 1, self.retry_failed, scanned)
            )
        if unreadable := failures(scenes):
            _tell_failures(STEPS[0], unreadable)  # before the estimate, which counts the others only
        if len(unreadable) == len(scenes):
            raise VideoError(
                f"{self.videos}: none of {len(scenes)} videos can be read; fix them, then give --retry-failed"
            )
        if short := short_videos(scenes, config):
            _tell_short(short, config.min_video_seconds)
        if len(unreadable) + len(short) == len(scenes):
            raise UsageError(
                f"{self.videos}: no video is long enough; give longer ones, or a lower min_video_seconds and another "
                "folder"
            )
        _print_estimate(estimate_costs(scenes, config), self.input_price, self.output_price)
        if self.estimate:
            return 0
        with progress_bars(*STEPS[1:]) as progress:
            outcome = asyncio.run(ask(progress))
        write_rows(outcome.kept, self.out / "rows.parquet")
        _print_outcome(outcome, self.out)
        return int(not outcome.kept)


def _print_estimate(costs: Sequence[StepCost], input_price: float, output_price: float) -> None:
    from rich.console import Console
    from rich.table import Table

    with_price = input_price > 0 or output_price > 0
    counted = ("requests", "pictures", "input tokens", "output tokens")
    table = Table("step", *counted, *(["price"] if with_price else []), title="at most, without retries")
    total = 0.0
    for cost in costs:
        price = (cost.input_tokens * input_price + cost.output_tokens * output_price) / 1e6
        total += price
        counts = (cost.requests, cost.images, cost.input_tokens, cost.output_tokens)
        table.add_row(cost.step, *(f"{count:,}" for count in counts), *([f"{price:.2f}"] if with_price else []))
    Console().print(table)
    if with_price:
        print(f"total price: {total:.2f}")
    sys.stdout.flush()  # before any model is asked, wherever the output goes


def _print_outcome(outcome: Outcome, out: Path) -> None:
    print(f"{out / 'rows.parquet'}: {len(outcome.kept)} of {outcome.num_written} questions written are left")
    for reason, count in outcome.dropped.most_common():
        print(f"  dropped, {reason}: {count}")
    for step, errors in outcome.failures.items():
        _tell_failures(step, errors)


def _tell_short(short: Mapping[str, float], min_seconds: float) -> None:
    path, seconds = next(iter(short.items()))
    typer.echo(
        f"scenes: {len(short)} left out as shorter than {min_seconds:g} s (min_video_seconds), for example {path} "
        f"({seconds:.1f} s)",
        err=True,
    )


def _tell_failures(step: str, errors: Sequence[str]) -> None:
    typer.echo(f"{step}: {len(errors)} failed (--retry-failed), for example {errors[0]}", err=True)
