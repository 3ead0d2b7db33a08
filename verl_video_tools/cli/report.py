"""`vvt report`: its options, and what it prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.options import command
from verl_video_tools.cli.progress import progress_bars
from verl_video_tools.core.errors import UsageError


@command
class Report:
    """Draw learning curves of one run or several. Writes a figure, a table, and the numbers."""

    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or of its records; several are compared.")
    ]
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the report; default: report in the first run.")
    ] = None
    name: Annotated[
        list[str] | None, typer.Option(help="Name of a run in the report, once for each; default: its folder's.")
    ] = None

    def run(self) -> None:
        from verl_video_tools.records.records import records_folder, run_folder, step_files
        from verl_video_tools.records.report import read_run, write_report

        folders = [run_folder(run).resolve() for run in self.runs]
        above = os.path.commonpath([folder.parent for folder in folders])
        names = self.name or [folder.relative_to(above).as_posix() for folder in folders]
        if len(names) != len(self.runs):
            raise UsageError(f"--name is given {len(names)} times for {len(self.runs)} runs; give it once for each run")
        if len(set(names)) < len(names):
            raise UsageError(f"two runs have the same name ({', '.join(names)}); give another with --name")
        records = [records_folder(run) for run in self.runs]
        num_files = sum(len(step_files(folder)) + len(step_files(folder, validation=True)) for folder in records)
        num_read = 0
        with progress_bars("steps") as (advance,):

            def step_read() -> None:
                nonlocal num_read
                num_read += 1
                advance(num_read, num_files)

            runs = [read_run(name, run, step_read) for name, run in zip(names, self.runs, strict=True)]
        out = self.out or run_folder(self.runs[0]) / "report"
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out {out}: cannot be made ({error.strerror or error})") from error
        print(write_report(runs, out))
        print(f"{out / 'report.md'}, {out / 'curves.png'}, {out / 'curves.json'}")
