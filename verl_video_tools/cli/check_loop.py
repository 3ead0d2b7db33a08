"""`vvt check-loop`: reads the options, audits the folder of a conformance run, prints and writes the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import command


@command
class CheckLoop:
    """Audit a conformance run of an agent loop. Exits 1 if a clean row breaks a check, or if a planted fault is trained
    on and breaks none."""

    folder: Annotated[Path, typer.Argument(help="Folder that the run wrote (VVT_LOOP_CHECK_DIR).")]
    model: Annotated[Path, typer.Option(help="Folder of the model that the run started from.")]
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="The run's trainer.default_local_dir: policies of later steps. Without it, step 1 is compared."
        ),
    ] = None
    max_difference: Annotated[
        float,
        typer.Option(min=0.0, help="Allowed mean difference of log-probabilities in a rollout; 3e-4 fits float32."),
    ] = 3e-4
    max_probs_diff: Annotated[
        float,
        typer.Option(min=0.0, help="Difference of probabilities from which training raises its alarm."),
    ] = 0.05
    out: Annotated[Path | None, typer.Option(help="JSON file to write: the findings of each check.")] = None
    overwrite: Overwrite = False

    def run(self) -> int:
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.core.errors import writing
        from verl_video_tools.loop_check.audit import audit, is_good
        from verl_video_tools.loop_check.checks import Context
        from verl_video_tools.loop_check.model import RunModel, check_checkpoints
        from verl_video_tools.loop_check.records import read_rollouts, read_settings
        from verl_video_tools.loop_check.table import explanations, results, text_table

        check_outputs(texts=(self.out,), overwrite=self.overwrite)
        rollouts = read_rollouts(self.folder)
        check_checkpoints(self.checkpoints)
        settings = read_settings(self.folder)
        context = Context(
            model=RunModel(self.folder, self.model, self.checkpoints, settings),
            settings=settings,
            steps_with_trained=frozenset(each.step for rollout in rollouts for each in rollout.trained.values()),
            max_difference=self.max_difference,
        )
        with progress_bars("groups") as (progress,):
            verdicts = audit(rollouts, context, progress)
        loops = sorted({rollout.loop for rollout in rollouts})
        found = results(verdicts, loops, self.max_probs_diff)
        print("\n".join([text_table(found), *explanations(found)]))
        if self.out is not None:
            with writing(self.out, "name a file in a folder that can be written"):
                self.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0 if is_good(verdicts) else 1
