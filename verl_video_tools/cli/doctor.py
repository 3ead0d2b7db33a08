"""`vvt doctor`: its options. The work is in doctor_report.py, which runs without Typer."""

from __future__ import annotations

from typing import Annotated

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
        if self.group is not None:
            if self.judge_base_url or self.judge_model:
                raise UsageError("with --run the judge is the one that the run's options name")
            from verl_video_tools.cli.run_check import dry_run

            return dry_run(self.group, self.options or [], self.as_json)
        if self.options:
            raise UsageError(f"options of verl belong to a run: vvt doctor --run GROUP {' '.join(self.options)}")
        from verl_video_tools.cli.doctor_report import report

        return report(self.as_json, self.judge_base_url, self.judge_model)
