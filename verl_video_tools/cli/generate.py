"""`vvt data generate`: scored rollouts of a model behind an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.options import (
    Asking,
    BaseURL,
    Model,
    RetryFlagged,
    RolloutsFile,
    Samples,
    Seed,
    Settings,
    Temperature,
    apart,
    command,
)
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method
    from verl_video_tools.data.generate import RolloutTask


@command
class Generate(Asking):
    """Record scored rollouts of a model behind an endpoint; exit 1 if all failed."""

    rows: Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Rows with the questions.")]
    out: RolloutsFile
    method: Annotated[str, typer.Option(help="Method whose loop, tools and reward run, such as videozoomer.")]
    base_url: BaseURL
    model: Model = None
    num_samples: Samples = 1
    temperature: Temperature = 1.0
    seed: Seed = None
    settings: Settings = None
    templates: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Forms that dialogues shall take: framethinker, or a TOML file."),
    ] = None
    template_share: Annotated[
        list[str] | None, typer.Option(metavar="TEMPLATE=SHARE", help="Another share of a template; repeatable.")
    ] = None
    retry_flagged: RetryFlagged = False

    def run(self) -> int:
        from verl_video_tools.data.dialogue_templates import load_templates, with_shares
        from verl_video_tools.data.generate import tasks_of_rows
        from verl_video_tools.methods import get_method

        if self.templates is None and self.template_share:
            raise UsageError("--template-share belongs to --templates")
        forms = () if self.templates is None else load_templates(self.templates)
        forms = with_shares(forms, read_assignments(self.template_share or [], "--template-share"))
        return make_rollouts(
            self,
            tasks_of_rows(self.rows, self.num_samples, forms, self.seed),
            apart(self.out, self.rows),
            get_method(self.method, **read_assignments(self.settings or [])),
            seed=self.seed,
            retry_flagged=self.retry_flagged,
        )


def make_rollouts(asking: Asking, tasks: Sequence[RolloutTask], out: Path, method: Method, **options: Any) -> int:
    """Run `data.generate.generate` with these options beside those of `asking`; returns the exit code."""
    from verl_video_tools.cli.progress import progress_bars
    from verl_video_tools.data.generate import generate

    policy, judge, retriever = asking.policy(), asking.judge(), asking.retriever()
    with progress_bars(type(asking).__name__.lower()) as (progress,):
        summary = asyncio.run(
            generate(tasks, out, method, policy, judge=judge, retriever=retriever, progress=progress, **options)
        )
    print(f"{out}: {summary}")
    return int(summary.num_flagged == len(summary.records))
