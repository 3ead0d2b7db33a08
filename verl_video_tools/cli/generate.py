"""`vvt data generate` and `vvt data reflect`: read the options, make rollouts, show progress and a summary."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.asking import Asking, Model, Seed, Settings, Temperature, asks
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.data.generate import RolloutTask
    from verl_video_tools.rollout.chat_policy import PolicyConfig

BaseURL = Annotated[str, typer.Option("--base-url", metavar="URL", help="OpenAI-compatible endpoint of the model.")]
Out = Annotated[Path, typer.Argument(help="File to write, one JSON line per rollout; goes on where it stops.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Rollouts of each.")]
RetryFlagged = Annotated[bool, typer.Option("--retry-flagged", help="Make rollouts again that failed.")]


@asks
def generate_command(
    rows: Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Rows with the questions.")],
    out: Out,
    method: Annotated[str, typer.Option(help="Method whose loop, tools and reward run, such as videozoomer.")],
    base_url: BaseURL,
    model: Model = None,
    num_samples: Samples = 1,
    temperature: Temperature = 1.0,
    seed: Seed = None,
    settings: Settings = None,
    templates: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Forms that dialogues shall take: framethinker, or a TOML file."),
    ] = None,
    template_share: Annotated[
        list[str] | None, typer.Option(metavar="TEMPLATE=SHARE", help="Another share of a template; repeatable.")
    ] = None,
    retry_flagged: RetryFlagged = False,
    *,
    asking: Asking,
) -> int:
    """Record scored rollouts of a model behind an endpoint; exit 1 if all failed."""
    from verl_video_tools.data.dialogue_templates import load_templates, with_shares
    from verl_video_tools.data.generate import tasks_of_rows

    if templates is None and template_share:
        raise UsageError("--template-share belongs to --templates")
    forms = () if templates is None else load_templates(templates)
    forms = with_shares(forms, read_assignments(template_share or [], "--template-share"))
    return _run(
        "generate",
        tasks_of_rows(rows, num_samples, forms, seed),
        _apart(out, rows),
        method,
        settings,
        seed=seed,
        retry_flagged=retry_flagged,
        policy=asking.policy(base_url, model, temperature),
        asking=asking,
    )


@asks
def reflect_command(
    records: Annotated[Path, typer.Argument(help="Recorded rollouts: a .jsonl file, or a folder of step_*.jsonl.")],
    out: Out,
    base_url: BaseURL,
    model: Model = None,
    num_samples: Samples = 1,
    temperature: Temperature = 1.0,
    seed: Seed = None,
    prompt_file: Annotated[Path | None, typer.Option(help="Text that replaces our instructions to reflect.")] = None,
    settings: Settings = None,
    retry_flagged: RetryFlagged = False,
    *,
    asking: Asking,
) -> int:
    """Let an expert correct wrong rollouts that looked again, from before their last turn on; exit 1 if all failed."""
    from verl_video_tools.data.reflect import reflection_prompt, tasks_of_failures

    method, tasks = tasks_of_failures(records, num_samples)
    return _run(
        "reflect",
        tasks,
        _apart(out, records),
        method,
        settings,
        instruction=reflection_prompt(prompt_file),
        seed=seed,
        retry_flagged=retry_flagged,
        policy=asking.policy(base_url, model, temperature),
        asking=asking,
    )


def _apart(out: Path, source: Path) -> Path:
    """The file to write, which is not the one that is read."""
    if out.resolve() == source.resolve():
        raise UsageError(f"{out} is the file that is read; give another file to write")
    return out


def _run(
    name: str,
    tasks: Sequence[RolloutTask],
    out: Path,
    method: str,
    settings: Sequence[str] | None,
    *,
    policy: PolicyConfig,
    asking: Asking,
    **options: Any,
) -> int:
    from verl_video_tools.cli.progress import progress_bars
    from verl_video_tools.data.generate import generate
    from verl_video_tools.methods import get_method

    configured = get_method(method, **read_assignments(settings or []))
    judge, retriever = asking.judge(), asking.retriever()
    with progress_bars(name) as (progress,):
        summary = asyncio.run(
            generate(
                tasks,
                out,
                configured,
                policy,
                judge=judge,
                retriever=retriever,
                progress=progress,
                **options,
            )
        )
    print(f"{out}: {summary}")
    return int(summary.num_flagged == len(summary.records))
