"""`vvt data logic`: read the options, let a model check dialogues, print the summary and name the rejected ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import check_continued
from verl_video_tools.cli.options import APIKeyEnv, DeadlineSeconds, Model, command, config_from


@command
class Logic:
    """Let a model check the reasoning of right dialogues. Exits 1 if none got a verdict."""

    records: Annotated[
        Path, typer.Argument(help="Recorded rollouts: folder of a run or of its trajectories, or a .jsonl file.")
    ]
    out: Annotated[
        Path, typer.Argument(help="File to write: right rollouts with a verdict; an existing one is continued.")
    ]
    base_url: Annotated[str, typer.Option("--base-url", metavar="URL", help="Endpoint of the model that checks.")]
    model: Model = None
    prompt_file: Annotated[Path | None, typer.Option(help="File with instructions to check, instead of ours.")] = None
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 32
    deadline_seconds: DeadlineSeconds = 600.0
    api_key_env: APIKeyEnv = "VVT_API_KEY"

    def run(self) -> int:
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.data.logic import check_logic
        from verl_video_tools.services.endpoint import EndpointConfig

        check_continued(self.out, (self.records,))
        config = config_from(EndpointConfig, self)
        with progress_bars("logic") as (progress,):
            summary = asyncio.run(
                check_logic(self.records, self.out, config, prompt_file=self.prompt_file, progress=progress)
            )
        print(f"{self.out}: {summary}")
        for verdict, named in (("rejected", summary.rejected), ("failed", summary.failed)):
            for (step, uid, session_id), reason in sorted(named.items()):
                typer.echo(f"{verdict}: step {step}, {uid}, rollout {session_id}: {reason}", err=True)
        return int(bool(summary.failed) and not summary.consistent and not summary.rejected)
