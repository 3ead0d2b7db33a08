"""`vvt data generate` and `vvt data reflect`: read the options, make rollouts, show progress and a summary."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.replay import read_assignments

if TYPE_CHECKING:
    from verl_video_tools.data.generate import RolloutTask

BaseURL = Annotated[str, typer.Option("--base-url", metavar="URL", help="OpenAI-compatible endpoint of the model.")]
Out = Annotated[Path, typer.Argument(help="File to write, one JSON line per rollout; goes on where it stops.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="Model to ask; default: the first that is served.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Rollouts of each.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Rollouts under way at a time.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Temperature of sampling.")]
Seed = Annotated[int | None, typer.Option(help="Seed of sampling, for endpoints that take one.")]
DeadlineSeconds = Annotated[float, typer.Option(min=0.1, help="Time for one turn with all its attempts.")]
JPEGQuality = Annotated[
    int | None, typer.Option(min=1, max=95, help="Send pictures as JPEG of this quality; default: PNG.")
]
APIKeyEnv = Annotated[str, typer.Option(metavar="NAME", help="Environment variable that holds the endpoint's key.")]
JudgeBaseURL = Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of a judge, for open questions.")]
JudgeModel = Annotated[str | None, typer.Option(metavar="NAME", help="Model to judge with; default: the first served.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the method's config; repeatable."),
]
Retrieval = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Encoder that finds frames by text, such as model=DIR; repeatable."),
]
RetryFlagged = Annotated[bool, typer.Option("--retry-flagged", help="Make rollouts again that failed.")]


def generate_command(
    rows: Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Rows with the questions.")],
    out: Out,
    method: Annotated[str, typer.Option(help="Method whose loop, tools and reward run, such as videozoomer.")],
    base_url: BaseURL,
    model: Model = None,
    num_samples: Samples = 1,
    concurrency: Concurrency = 32,
    temperature: Temperature = 1.0,
    seed: Seed = None,
    deadline_seconds: DeadlineSeconds = 600.0,
    jpeg_quality: JPEGQuality = None,
    api_key_env: APIKeyEnv = "VVT_API_KEY",
    judge_base_url: JudgeBaseURL = None,
    judge_model: JudgeModel = None,
    settings: Settings = None,
    retrieval: Retrieval = None,
    retry_flagged: RetryFlagged = False,
) -> int:
    """Record scored rollouts of a model behind an endpoint; exit 1 if all failed."""
    from verl_video_tools.data.generate import tasks_of_rows

    return _run(
        "generate",
        tasks_of_rows(rows, num_samples),
        out,
        method,
        settings,
        seed=seed,
        retry_flagged=retry_flagged,
        retrieval=retrieval,
        policy={
            "base_url": base_url,
            "model": model,
            "concurrency": concurrency,
            "temperature": temperature,
            "deadline_seconds": deadline_seconds,
            "jpeg_quality": jpeg_quality,
            "api_key_env": api_key_env,
        },
        judge={"base_url": judge_base_url, "model": judge_model},
    )


def reflect_command(
    records: Annotated[Path, typer.Argument(help="Recorded rollouts: a .jsonl file, or a folder of step_*.jsonl.")],
    out: Out,
    base_url: BaseURL,
    model: Model = None,
    num_samples: Samples = 1,
    concurrency: Concurrency = 32,
    temperature: Temperature = 1.0,
    seed: Seed = None,
    deadline_seconds: DeadlineSeconds = 600.0,
    jpeg_quality: JPEGQuality = None,
    api_key_env: APIKeyEnv = "VVT_API_KEY",
    judge_base_url: JudgeBaseURL = None,
    judge_model: JudgeModel = None,
    prompt_file: Annotated[Path | None, typer.Option(help="Text that replaces our instructions to reflect.")] = None,
    settings: Settings = None,
    retrieval: Retrieval = None,
    retry_flagged: RetryFlagged = False,
) -> int:
    """Let an expert correct wrong rollouts that looked again, from before their last turn on; exit 1 if all failed."""
    from verl_video_tools.data.reflect import reflection_prompt, tasks_of_failures

    method, tasks = tasks_of_failures(records, num_samples)
    return _run(
        "reflect",
        tasks,
        out,
        method,
        settings,
        instruction=reflection_prompt(prompt_file),
        seed=seed,
        retry_flagged=retry_flagged,
        retrieval=retrieval,
        policy={
            "base_url": base_url,
            "model": model,
            "concurrency": concurrency,
            "temperature": temperature,
            "deadline_seconds": deadline_seconds,
            "jpeg_quality": jpeg_quality,
            "api_key_env": api_key_env,
        },
        judge={"base_url": judge_base_url, "model": judge_model},
    )


def _run(
    name: str,
    tasks: Sequence[RolloutTask],
    out: Path,
    method: str,
    settings: Sequence[str] | None,
    *,
    policy: dict[str, Any],
    judge: dict[str, Any],
    retrieval: Sequence[str] | None,
    **options: Any,
) -> int:
    from verl_video_tools.data.generate import generate
    from verl_video_tools.data.progress import progress_bars
    from verl_video_tools.endpoint.policy import PolicyConfig
    from verl_video_tools.judge import JudgeConfig
    from verl_video_tools.methods import get_method
    from verl_video_tools.retrieval import local_from_fields

    configured = get_method(method, **read_assignments(settings or []))
    judge_config = None if judge["base_url"] is None else JudgeConfig(**judge)
    retriever = local_from_fields(read_assignments(retrieval or [], "--retrieval"))
    with progress_bars(name) as (progress,):
        summary = asyncio.run(
            generate(
                tasks,
                out,
                configured,
                PolicyConfig(**policy),
                judge=judge_config,
                retriever=retriever,
                progress=progress,
                **options,
            )
        )
    print(f"{out}: {summary}")
    return int(summary.num_flagged == len(summary.records))
