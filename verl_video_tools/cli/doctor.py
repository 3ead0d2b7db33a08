"""`vvt doctor`: its options. The work is in doctor_report.py, which runs without Typer."""

from __future__ import annotations

from typing import Annotated

import typer

from verl_video_tools.cli.options import command


@command
class Doctor:
    """Check whether this installation can train. Exits with 1, and prints the fix, if a needed part is wrong."""

    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False
    judge_base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also check the judge at this endpoint; default: VVT_JUDGE_BASE_URL."),
    ] = None
    judge_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to judge with; default: the first that is served.")
    ] = None

    def run(self) -> int:
        from verl_video_tools.cli.doctor_report import report

        return report(self.as_json, self.judge_base_url, self.judge_model)
