"""`vvt data stats`: what rows hold, in numbers."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verl_video_tools.cli.options import Probing, Rows, command, listed


@command
class Stats(Probing):
    """Count rows by source, method, type, options and answer."""

    source: Rows
    probe: Annotated[bool, typer.Option("--probe", help="Also open the videos, for their lengths.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False

    def run(self) -> None:
        from verl_video_tools.data.stats import row_stats

        videos = self.probe_videos(self.source) if self.probe else None
        found = row_stats(self.source, videos)
        if self.as_json:
            print(json.dumps(found))
            return
        for name, value in found.items():
            if value or name == "rows":
                print(f"{name}: {listed(value)}")
