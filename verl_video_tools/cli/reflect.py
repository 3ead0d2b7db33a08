"""`vvt data reflect`: rollouts that correct recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.generate import make_rollouts
from verl_video_tools.cli.options import Sampling, command


@command
class Reflect(Sampling):
    """Let an expert correct wrong rollouts that looked again. Exits 1 if all failed."""

    records: Annotated[
        Path, typer.Argument(help="Recorded rollouts: folder of a run or of its trajectories, or a .jsonl file.")
    ]
    prompt_file: Annotated[Path | None, typer.Option(help="File with instructions to reflect, instead of ours.")] = None

    def run(self) -> int:
        from verl_video_tools.data.generation.task import reflection_prompt, tasks_of_failures

        method, tasks = tasks_of_failures(self.records, self.num_samples)
        return make_rollouts(self, tasks, self.records, method, instruction=reflection_prompt(self.prompt_file))
