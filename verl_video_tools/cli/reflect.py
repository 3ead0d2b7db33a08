"""`vvt data reflect`: rollouts that correct recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.generate import make_rollouts
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


@command
class Reflect(Asking):
    """Let an expert correct wrong rollouts that looked again, from before their last turn on; exit 1 if all failed."""

    records: Annotated[Path, typer.Argument(help="Recorded rollouts: a .jsonl file, or a folder of step_*.jsonl.")]
    out: RolloutsFile
    base_url: BaseURL
    model: Model = None
    num_samples: Samples = 1
    temperature: Temperature = 1.0
    seed: Seed = None
    prompt_file: Annotated[Path | None, typer.Option(help="Text that replaces our instructions to reflect.")] = None
    settings: Settings = None
    retry_flagged: RetryFlagged = False

    def run(self) -> int:
        from verl_video_tools.data.reflect import reflection_prompt, tasks_of_failures
        from verl_video_tools.methods import get_method

        method, tasks = tasks_of_failures(self.records, self.num_samples)
        return make_rollouts(
            self,
            tasks,
            apart(self.out, self.records),
            get_method(method, **read_assignments(self.settings or [])),
            instruction=reflection_prompt(self.prompt_file),
            seed=self.seed,
            retry_flagged=self.retry_flagged,
        )
