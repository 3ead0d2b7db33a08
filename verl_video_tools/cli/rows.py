"""`vvt data stats`, `split` and `decontaminate`: read the options, do the work, print what came of it."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_video_tools.data.video_identity import SIGNS, Sign

Rows = Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Parquet file of our rows.")]
Known = Annotated[
    list[Sign] | None,
    typer.Option(
        "--by",
        help="What makes two videos one; youtube: the id in the file's name. Repeatable, default all.",
    ),
]


def stats_command(
    source: Rows,
    probe: Annotated[bool, typer.Option("--probe", help="Also open the videos, for their lengths.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes that open videos; default: the CPUs.")] = None,
    deadline_seconds: Annotated[float, typer.Option(min=0.1, help="Time to open one video, in seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count rows by source, method, type, options and letter of the truth, and tell of their videos."""
    from verl_video_tools.cli.progress import progress_bars
    from verl_video_tools.data.stats import row_stats
    from verl_video_tools.data.validate import probe_videos

    videos = None
    if probe:
        with progress_bars("videos") as (progress,):
            videos = probe_videos(source, jobs or os.cpu_count() or 1, deadline_seconds, progress)
    found = row_stats(source, videos).to_dict()
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if value or name == "rows":
            print(f"{name}: {_listed(value)}")


def split_command(
    source: Rows,
    first: Annotated[Path, typer.Argument(metavar="TRAIN.parquet", help="File for most rows.")],
    second: Annotated[Path, typer.Argument(metavar="TEST.parquet", help="File for the others.")],
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the rows that the second file gets.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the choice of videos.")] = 0,
    by: Known = None,
) -> None:
    """Split rows so that no video is in both files."""
    from verl_video_tools.data.subsets import split_by_video

    split = split_by_video(source, first, second, second_share=share, seed=seed, signs=by or SIGNS)
    for path, num_rows, num_videos in zip((first, second), split.num_rows, split.num_videos, strict=True):
        print(f"{path}: {num_rows} rows on {num_videos} videos")


def decontaminate_command(
    source: Rows,
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="File to write: the rows that are clean.")],
    against: Annotated[
        list[str],
        typer.Option(
            "--against",
            metavar="BENCHMARK",
            help="NAME=FILE, published annotations of a benchmark such as video-mme; its rows (.parquet); or names or "
            "YouTube URLs of its videos (.txt). Repeatable.",
        ),
    ],
    by: Known = None,
) -> None:
    """Leave out rows whose video occurs in a benchmark."""
    from verl_video_tools.data.subsets import decontaminate

    found = decontaminate(source, out, against, by or SIGNS, lambda text: typer.echo(text, err=True))
    for row in found:
        sign, value = row.identity
        typer.echo(f"row {row.number}: in {row.benchmark} by {sign} ({value})", err=True)
    counts = Counter(f"{row.benchmark} by {row.identity[0]}" for row in found)
    print(f"{out}: {len(found)} rows left out" + (f" ({_listed(dict(counts))})" if found else ""))


def _listed(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {round(count, 1):g}" for name, count in value.items())
