"""Cost of reading frames: ours against qwen-vl-utils, torchcodec and decord.

    make bench-video                            # everything; a quarter of an hour on an idle machine
    python -m benchmarks.video_io --quick       # a minute, to see that it works; its figures say little

Makes its own videos, A and B, both H.264 at 30 fps with a number in every frame. Kinds of requests: S1 one frame; W4,
W16, W32 windows of so many frames at 1, 2 and 1 per second; U8, U32, U128 uniform over the file; all frames 588x336. A
group's trace is G rollouts of one U32 and three W16 near the same moment. The figure is CPU time of the reading
process, with all its threads and children: what many rollouts on one machine share. Frames that show another number
than the one asked for are counted. Prints tables, and writes them and a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.video import costs
from benchmarks.video.costs import Cost, ShapeCosts, TraceCost
from benchmarks.video.long_files import LongVideo, write_long_video
from benchmarks.video.readers import READERS
from benchmarks.video.worker import SHARED


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    videos: tuple[LongVideo, ...]
    shapes: dict[str, tuple[str, ...]]
    repetitions: int
    slow_repetitions: int
    groups: tuple[int, ...]


FULL = Scale(
    videos=(LongVideo("A", 640, 360, 300, copies=12), LongVideo("B", 1280, 720, 120, copies=5)),
    shapes={"A": ("S1", "W4", "W16", "W32", "U8", "U32", "U128"), "B": ("S1", "W4", "W16", "W32", "U8")},
    repetitions=9,
    slow_repetitions=3,
    groups=(4, 8),
)
QUICK = Scale(
    videos=(LongVideo("A", 640, 360, 4, copies=15), LongVideo("B", 1280, 720, 2, copies=20)),
    shapes={"A": ("S1", "W16", "U8"), "B": ("W4",)},
    repetitions=2,
    slow_repetitions=1,
    groups=(2,),
)
COLUMNS = {
    "ours_warm": "ours warm",
    "ours_cold": "ours cold",
    "torchcodec_warm": "torchcodec exact warm",
    "torchcodec_cold": "torchcodec exact cold",
    "qwen": "qwen-vl-utils",
    "decord": "decord",
}
WAYS = {"qwen": "qwen-vl-utils", "uncached": "ours, no cache", "exact": "ours"}
"""How a group's requests are read."""
Traces = dict[str, dict[str, TraceCost | str]]
"""By group and way; a text says why there is no cost."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--quick", action="store_true", help="a smoke run on short videos; its figures say little")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench_video"), help="folder for tables and JSON")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        default=cache_home / "verl_video_tools" / "bench_video",
        help="folder that keeps the test videos (0.3 GB, minutes to make) for the next run",
    )
    parser.add_argument("--readers", nargs="+", choices=sorted(READERS), default=list(READERS), help="which to measure")
    options = parser.parse_args()
    options.cache_dir.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    scale = QUICK if options.quick else FULL
    costs.progress("making the test videos")
    videos = [(video, write_long_video(video, options.cache_dir)) for video in scale.videos]
    shapes = costs.measure_shapes(videos, scale.shapes, options.readers, scale.repetitions, scale.slow_repetitions)
    traces = measure_traces(scale, videos[0], has_baseline="qwen" in options.readers)
    hit_ms = costs.measure_cache_hit(*videos[0], scale.repetitions)
    text = "\n\n".join(
        [
            _where(scale, shapes),
            shape_table(shapes.costs),
            trace_table(traces),
            f"Cache hit: {hit_ms:.2f} ms per frame.",
        ]
    )
    print(text)
    (options.out / "video_io.md").write_text(text + "\n", encoding="utf-8")
    result = {"shapes": asdict(shapes), "traces": traces, "cache_hit_ms": hit_ms}
    (options.out / "video_io.json").write_text(json.dumps(result, indent=1, default=asdict) + "\n", encoding="utf-8")


def measure_traces(scale: Scale, video: tuple[LongVideo, Path], *, has_baseline: bool) -> Traces:
    traces: Traces = {}
    for num_rollouts in scale.groups:
        measure = partial(costs.measure_trace, *video, num_rollouts=num_rollouts, repetitions=1)
        ways = {
            "uncached": measure(SHARED, cache_bytes=0),
            "exact": measure(SHARED),
        }
        if has_baseline:
            ways["qwen"] = measure("qwen")
        traces[f"G={num_rollouts}"] = ways
    return traces


def _where(scale: Scale, shapes: ShapeCosts) -> str:
    files = "; ".join(
        f"{video.name} = {video.num_frames // video.fps / 60:.3g} min of {video.width}x{video.height}"
        for video in scale.videos
    )
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    versions = ", ".join(dict.fromkeys(shapes.versions.values()))
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    cores = len(os.sched_getaffinity(0))
    return f"{files}. Frames of 588x336. {cores} cores ({cpu}), {date}, `python -m benchmarks.video_io`. {versions}."


def shape_table(costs_of: dict[str, dict[str, dict[str, Cost | str]]]) -> str:
    """Markdown: CPU milliseconds per request, a row per file and shape, a column per reader."""
    rows = {f"{file} {shape}": row for file, shapes in costs_of.items() for shape, row in shapes.items()}
    readers = [reader for reader in COLUMNS if any(reader in row for row in rows.values())]
    measured = [cost for row in rows.values() for cost in row.values() if isinstance(cost, Cost)]
    most = max((cost.repetitions for cost in measured), default=0)
    lines = [["CPU ms per request", *(COLUMNS[reader] for reader in readers), "cold / qwen-vl-utils"]]
    for name, row in rows.items():
        cells = [_cell(row.get(reader, ""), most) for reader in readers]
        ours, theirs = row.get("ours_cold"), row.get("qwen")
        ratio = f"{ours.cpu_ms / theirs.cpu_ms:.2f}" if isinstance(ours, Cost) and isinstance(theirs, Cost) else ""
        lines.append([name, *cells, ratio])
    return f"{_markdown(lines)}\n\nMedians of {most} requests at random places, the same for all readers."


def _cell(cost: Cost | str, most: int) -> str:
    if isinstance(cost, str):  # why there is none
        return cost
    text = f"{cost.cpu_ms:.0f}"
    if cost.wrong_frames:
        text += f" ({cost.wrong_frames} of {cost.asked_frames} frames wrong)"
    return text if cost.repetitions == most else f"{text} (median of {cost.repetitions})"


def trace_table(traces: Traces) -> str:
    """Markdown: CPU seconds per group of rollouts."""
    lines = [["CPU s per group", *WAYS.values()]]
    for group, ways in traces.items():
        found = [ways.get(way, "") for way in WAYS]
        lines.append([group, *(f"{cost.cpu_seconds:.2f}" if isinstance(cost, TraceCost) else cost for cost in found)])
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([rows[0], "|---" * len(lines[0]) + "|", *rows[1:]])


if __name__ == "__main__":
    main()
