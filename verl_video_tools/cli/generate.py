"""`vvt data generate`: scored rollouts of a model behind an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.files import check_continued
from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import Sampling, command
from verl_video_tools.core.assignments import read_assignments

if TYPE_CHECKING:
    from verl_video_tools.data.generation.task import RolloutTask


@command
class Generate(Sampling):
    """Record scored rollouts of a model behind an endpoint. Exits 1 if all failed."""

    rows: Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Rows with the questions.")]
    method: Annotated[
        str,
        typer.Option(
            help="Method whose loop, tools and reward run, such as videozoomer.", autocompletion=names_of("methods")
        ),
    ]
    templates: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Dialogue templates: framethinker, or a TOML file."),
    ] = None

    def run(self) -> int:
        from verl_video_tools.data.generation.task import tasks_of_rows
        from verl_video_tools.data.generation.templates import load_templates

        forms = () if self.templates is None else load_templates(self.templates)
        tasks = tasks_of_rows(self.rows, self.num_samples, forms, self.seed)
        settings = {"templates": [asdict(form) for form in forms]} if forms else {}
        return make_rollouts(self, tasks, self.rows, self.method, settings=settings)


def make_rollouts(
    options: Sampling,
    tasks: Sequence[RolloutTask],
    source: Path,
    method: str,
    instruction: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Run `data.generation.generate` with these options; returns the exit code.

    Args:
        source: file that the tasks were read from; it is not overwritten.
        instruction, settings: as `generate` takes them; the retriever's fields are added.
    """
    from verl_video_tools.cli.progress import progress_bars
    from verl_video_tools.data.generation.generate import generate
    from verl_video_tools.methods import get_method

    check_continued(options.out, (source,))
    configured = get_method(method, **read_assignments(options.settings or []))
    policy, judge, retriever = options.policy(), options.judge(), options.retriever()
    with progress_bars(type(options).__name__.lower()) as (progress,):
        summary = asyncio.run(
            generate(
                tasks,
                options.out,
                configured,
                policy,
                judge=judge,
                retriever=retriever,
                tool_model=options.tool_model(),
                instruction=instruction,
                seed=options.seed,
                retry_flagged=options.retry_flagged,
                settings={"retrieval": options.retrieval_fields(), **(settings or {})},
                progress=progress,
            )
        )
    print(f"{options.out}: {summary}")
    return int(summary.num_flagged == len(summary.records))
