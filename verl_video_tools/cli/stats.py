"""`vvt data stats`: what rows hold, in numbers."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from verl_video_tools.cli.options import Jobs, OpenSeconds, Rows, command, listed


@command
class Stats:
    """Count rows by source, method, type, options and letter of the truth, and tell of their videos."""

    source: Rows
    probe: Annotated[bool, typer.Option("--probe", help="Also open the videos, for their lengths.")] = False
    jobs: Jobs = None
    deadline_seconds: OpenSeconds = 60.0
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False

    def run(self) -> None:
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.data.stats import row_stats
        from verl_video_tools.data.validate import probe_videos

        videos = None
        if self.probe:
            with progress_bars("videos") as (progress,):
                videos = probe_videos(self.source, self.jobs or os.cpu_count() or 1, self.deadline_seconds, progress)
        found = row_stats(self.source, videos).to_dict()
        if self.as_json:
            print(json.dumps(found))
            return
        for name, value in found.items():
            if value or name == "rows":
                print(f"{name}: {listed(value)}")
