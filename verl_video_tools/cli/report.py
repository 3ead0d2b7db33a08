"""`vvt report`: its options, and what it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.options import command
from verl_video_tools.cli.progress import progress_bars
from verl_video_tools.core.errors import UsageError


@command
class Report:
    """Draw learning curves of one run or several. Writes a page, an image, and the numbers."""

    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or of its records; several are compared.")
    ]
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the report; default: report in the first run.")
    ] = None
    name: Annotated[
        list[str] | None, typer.Option(help="Name of a run in the report, once for each; default: its folder's.")
    ] = None
    log: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="verl's log, once for each run; default: metrics*.jsonl in the run."),
    ] = None
    max_rollouts: Annotated[
        int, typer.Option(min=1, help="Rollouts of a run to look at, in groups spread evenly over its last step.")
    ] = 64
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails/--no-thumbnails", help="Decode the frames that these were shown.")
    ] = True

    def run(self) -> None:
        from verl_video_tools.records.records import run_folder, step_files
        from verl_video_tools.records.report_curves import methods_in, read_run, recorded_folder, run_names
        from verl_video_tools.records.report_page import write_report
        from verl_video_tools.records.view import write_view

        names = self.name or run_names(self.runs)
        logs: list[Path] | list[None] = self.log or [None] * len(self.runs)
        for option, values in (("--name", names), ("--log", logs)):
            if len(values) != len(self.runs):
                raise UsageError(
                    f"{option} is given {len(values)} times for {len(self.runs)} runs; give it once for each run"
                )
        if len(set(names)) < len(names):
            raise UsageError(f"--name: two runs have the same name ({', '.join(names)})")
        folders = [recorded_folder(run) for run in self.runs]
        out = self.out or run_folder(self.runs[0]) / "report"
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out {out}: cannot be made ({error.strerror or error})") from error

        num_files = sum(len(step_files(folder)) + len(step_files(folder, validation=True)) for folder in folders)
        num_read = 0
        pages: dict[str, str] = {}
        with progress_bars("steps", "rollouts", *(["thumbnails"] if self.thumbnails else [])) as advance:

            def step_read() -> None:
                nonlocal num_read
                num_read += 1
                advance[0](num_read, num_files)

            read = [read_run(name, run, log, step_read) for name, run, log in zip(names, self.runs, logs, strict=True)]
            for number, run in enumerate(read, start=1):
                pages[run.name] = "rollouts.html" if number == 1 else f"rollouts_{number}.html"
                write_view(
                    run.last_rollouts,
                    out / pages[run.name],
                    title=f"{run.name}: {run.last_rollouts.stem}",
                    max_rollouts=self.max_rollouts,
                    read=advance[1],
                    decoded=advance[2] if self.thumbnails else None,
                    first_methods=methods_in(run.training),
                )
        num_bytes = write_report(read, out, pages)

        print(f"{out / 'report.html'}: {num_bytes / 1e6:.1f} MB, with {', '.join(pages.values())}")
        print(f"{out / 'curves.png'}, {out / 'curves.json'}")
