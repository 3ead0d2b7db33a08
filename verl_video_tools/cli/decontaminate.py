"""`vvt data decontaminate`: rows without the videos of benchmarks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import Rows, command, listed


@command
class Decontaminate:
    """Leave out rows whose video occurs in a benchmark."""

    source: Rows
    out: Annotated[
        Path, typer.Argument(metavar="OUT.parquet", help="File to write: rows whose video is in no benchmark.")
    ]
    against: Annotated[
        list[str],
        typer.Option(
            "--against",
            metavar="BENCHMARK",
            help="NAME=FILE, published annotations of a benchmark such as video-mme; its rows (.parquet); or names or "
            "YouTube URLs of its videos (.txt). Repeatable.",
        ),
    ]
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.subsets import decontaminate

        check_outputs(rows=(self.out,), sources=(self.source,), overwrite=self.overwrite)
        found = decontaminate(self.source, self.out, self.against, lambda text: typer.echo(text, err=True))
        for row in found:
            sign, value = row.identity
            typer.echo(f"row {row.number}: in {row.benchmark} by {sign} ({value})", err=True)
        counts = Counter(f"{row.benchmark} by {row.identity[0]}" for row in found)
        print(f"{self.out}: {len(found)} rows left out" + (f" ({listed(dict(counts))})" if found else ""))
