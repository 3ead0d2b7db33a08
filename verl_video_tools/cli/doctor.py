"""`vvt doctor`: checks of an installation, or of a run before its start."""

from __future__ import annotations

from typing import Annotated, cast, get_args

import typer

from verl_video_tools.cli.options import command
from verl_video_tools.core.errors import UsageError


@command
class Doctor:
    """Check an installation, or a run with --run. Exits 1 and prints fixes if it cannot train."""

    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VERL_OPTION]...", help="With --run: more config groups, and options of verl."),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="GROUP",
            help="A method and a stage, such as longvt_grpo: check the run's configuration, model, rows and services "
            "with the variables of this shell, and start nothing.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False
    judge_base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also check the judge at this endpoint; default: VVT_JUDGE_BASE_URL."),
    ] = None
    judge_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to judge with; default: the first that is served.")
    ] = None

    def run(self) -> int:
        if self.group is None:
            if self.options:
                raise UsageError(f"options of verl belong to a run: vvt doctor --run GROUP {' '.join(self.options)}")
            from verl_video_tools.launch.checks.installation import installation_report

            return installation_report(self.judge_base_url, self.judge_model).show(self.as_json)
        if self.judge_base_url or self.judge_model:
            raise UsageError("with --run the judge is the one that the run's options name")
        from verl_video_tools.launch.train import Request, Stage, dry_run

        stage = self.group.rpartition("_")[2]
        if stage not in get_args(Stage):
            raise UsageError(f"--run {self.group}: give a method and a stage, such as longvt_grpo")
        overrides = (f"+video_tools={self.group}", *(self.options or ()))
        return dry_run(Request(cast(Stage, stage), overrides)).show(self.as_json)
