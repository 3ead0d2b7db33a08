"""`vvt data probe`: reads the options, runs `probe_files`, writes the report and prints what is bad."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import command
from verl_video_tools.core.errors import UsageError


@command
class Probe:
    """Check every video of a data set. Exits with 1 if any cannot be used."""

    source: Annotated[
        Path, typer.Argument(help="Rows (.parquet, .jsonl), a folder, a .txt list of paths, or one video file.")
    ]
    out: Annotated[Path | None, typer.Option(help="Report to write: one JSON object per file.")] = None
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads that open videos; default: the number of CPUs.")] = (
        None
    )
    decode: Annotated[bool, typer.Option("--decode", help="Decode every frame, to find damaged ones; slow.")] = False
    deadline_seconds: Annotated[float, typer.Option(min=0.1, help="Time for one file, in seconds.")] = 60.0
    overwrite: Overwrite = False

    def run(self) -> int:
        from rich.console import Console
        from rich.table import Table

        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.data.probe_files import find_videos, probe_files

        check_outputs(texts=(self.out,), sources=(self.source,), overwrite=self.overwrite)
        paths = find_videos(self.source)
        num_bad: Counter[str] = Counter()
        examples: dict[str, str] = {}
        with ExitStack() as stack:
            try:
                report = None if self.out is None else stack.enter_context(self.out.open("w", encoding="utf-8"))
            except OSError as error:
                raise UsageError(f"--out {self.out}: {error.strerror}") from error
            (progress,) = stack.enter_context(progress_bars("probe"))
            records = probe_files(paths, self.jobs or os.cpu_count() or 1, self.deadline_seconds, self.decode)
            for num_done, record in enumerate(records, start=1):
                if report is not None:
                    report.write(json.dumps(record) + "\n")
                    report.flush()
                if not record["ok"]:
                    num_bad[record["error"]] += 1
                    examples.setdefault(record["error"], record["message"])
                progress(num_done, len(paths))
        print(f"{self.source}: {len(paths)} files, {num_bad.total()} bad")
        if not num_bad:
            return 0
        table = Table("reason", "files", "for example")
        for reason, count in num_bad.most_common():
            table.add_row(reason, str(count), examples[reason])
        Console(markup=False).print(table)
        return 1
