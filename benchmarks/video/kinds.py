"""A table of all kinds of files that tests make: how frames are reached, and how many were wrong.

    python -m benchmarks.video.kinds                    # docs/reliability.md sums it up; two minutes
    python -m benchmarks.video.kinds --seeds 10         # other random times, ten rounds of them

Exits with 1 if a frame was wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.videos.compare import compare
from tests.videos.kinds import WRITERS
from tests.videos.rare_kinds import RARE_WRITERS
from tests.videos.reference import Reference
from verl_video_tools.video import Video
from verl_video_tools.video.source import open_container


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of file."""

    name: str
    format: str
    num_frames: int
    is_random_access: bool
    asked: int
    num_wrong: int
    wrong: str | None


def measure(name: str, path: Path, num_seeds: int) -> Row:
    """Compare a file's frames with one pass over it, for each seed at other random times."""
    with open_container(path) as container:
        codec = container.streams.video[0].codec_context
        file_format = f"{container.format.name.split(',')[0]}, {codec.codec.canonical_name}, {codec.pix_fmt}"
    reference = Reference(path)
    with Video(path) as video:
        is_random_access = video.is_random_access
        comparisons = [compare(video, reference, seed) for seed in range(num_seeds)]
    return Row(
        name,
        file_format,
        len(reference.pictures),
        is_random_access,
        sum(comparison.asked for comparison in comparisons),
        sum(comparison.num_wrong for comparison in comparisons),
        next((comparison.wrong for comparison in comparisons if comparison.wrong), None),
    )


def table(rows: Sequence[Row]) -> str:
    """Markdown, and a line that sums up."""
    lines = [
        "| file | container, codec, pixels | frames | reached by | compared | wrong |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        way = "seeks" if row.is_random_access else "one pass"
        wrong = f"{row.num_wrong} ({row.wrong})" if row.wrong else "0"
        lines.append(f"| {row.name} | {row.format} | {row.num_frames} | {way} | {row.asked} | {wrong} |")
    num_seeks = sum(row.is_random_access for row in rows)
    asked, num_wrong = sum(row.asked for row in rows), sum(row.num_wrong for row in rows)
    lines += ["", f"{len(rows)} kinds, {num_seeks} of them by seeks: {num_wrong} of {asked} frames wrong."]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="rounds of random times per file")
    parser.add_argument("--only", nargs="+", help="names of files; all by default")
    options = parser.parse_args(arguments)
    writers = {**WRITERS, **RARE_WRITERS}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or sorted(writers):
            print(name, file=sys.stderr, flush=True)
            rows.append(measure(name, writers[name](Path(folder) / name), options.seeds))
    print(table(rows))
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
