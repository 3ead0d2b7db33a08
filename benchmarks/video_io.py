"""Cost and accuracy of reading frames: ours against qwen-vl-utils, torchcodec, decord and the decode limit.

    make bench-video                                     # everything; a quarter of an hour on an idle machine
    python -m benchmarks.video_io --quick --no-gate      # a minute, to see that it works; its figures say little

Makes its own videos: A, an hour of 640x360, and B, ten minutes of 1280x720, both H.264 at 30 fps, and small ones of
every kind with a number in every frame. Kinds of requests: S1 one frame; W4, W16, W32 windows of so many frames at 1, 2
and 1 per second; U8, U32, U128 uniform over the file; all frames 588x336. A group's trace is G rollouts of one U32 and
three W16 near the same moment. The figure is CPU time of the reading process, with all its threads and children: what
many rollouts on one machine share. Writes tables (also to stdout), JSON and a plot. Exits with 1 if a target is missed
or a frame was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.video import checks, costs, report, targets
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
    trace_repetitions: int
    edge_files: tuple[str, ...] | None
    requests_per_file: int
    memory_requests: int


FULL = Scale(
    videos=(LongVideo("A", 640, 360, 300, copies=12), LongVideo("B", 1280, 720, 120, copies=5)),
    shapes={"A": ("S1", "W4", "W16", "W32", "U8", "U32", "U128"), "B": ("S1", "W4", "W16", "W32", "U8")},
    repetitions=9,
    slow_repetitions=3,
    groups=(4, 8),
    trace_repetitions=1,
    edge_files=None,
    requests_per_file=10,
    memory_requests=10_000,
)
QUICK = Scale(
    videos=(LongVideo("A", 640, 360, 4, copies=15), LongVideo("B", 1280, 720, 2, copies=20)),
    shapes={"A": ("S1", "W16", "U8"), "B": ("W4",)},
    repetitions=2,
    slow_repetitions=1,
    groups=(2,),
    trace_repetitions=1,
    edge_files=("h264.mp4", "uneven.mkv", "open_gop.ts", "rotated_90.mp4", "edit_list.mp4", "corrupt.mp4"),
    requests_per_file=3,
    memory_requests=200,
)
GRID_SECONDS = 0.5
MEMORY_SAMPLES = 20


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    options.cache_dir.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    results = _measure(scale, options)
    (options.out / "video_io.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tables = [report.summary(results), report.target_table(results)]
    (options.out / "video_io.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    print("\n\n".join(tables))
    report.plot(results, options.out / "video_io.png")
    missed = [target["name"] for target in results["targets"] if target["passed"] is not True]
    if missed:
        print(f"\n{len(missed)} targets missed or not measured: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed and not options.no_gate else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--quick", action="store_true", help="a smoke run on short videos; its figures say little")
    parser.add_argument("--no-gate", action="store_true", help="exit with 0 even if a target is missed")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench_video"), help="folder for tables, JSON, plot")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        default=cache_home / "verl_video_tools" / "bench_video",
        help="folder that keeps the test videos (0.3 GB, minutes to make) for the next run",
    )
    parser.add_argument("--repetitions", type=int, help="requests of each kind; the medians are of so many")
    parser.add_argument("--memory-requests", type=int, help="requests over which memory must stay flat")
    parser.add_argument("--readers", nargs="+", choices=sorted(READERS), default=list(READERS), help="which to measure")
    parser.add_argument("--time-limit-seconds", type=float, default=180.0, help="of one request, before it is killed")
    return parser


def _measure(scale: Scale, options: argparse.Namespace) -> dict[str, Any]:
    run_name = f"bench-{os.getpid()}"
    costs.progress("making the test videos")
    videos = [(video, write_long_video(video, options.cache_dir)) for video in scale.videos]
    shapes = costs.measure_shapes(
        videos,
        scale.shapes,
        options.readers,
        options.repetitions or scale.repetitions,
        scale.slow_repetitions,
        options.time_limit_seconds,
    )
    traces = _measure_traces(scale, videos[0], run_name, has_baseline="qwen" in options.readers)
    hit = costs.measure_cache_hit(*videos[0], options.repetitions or scale.repetitions, f"{run_name}-hit")
    num_memory_requests = options.memory_requests or scale.memory_requests
    with tempfile.TemporaryDirectory() as folder:
        files = checks.make_files(Path(folder) / "edge", scale.edge_files)
        environment = costs.cache_environment(f"{run_name}-checks")
        accuracy = checks.check_accuracy(SHARED, files, scale.requests_per_file, seed=0, environment=environment)
        costs.progress("accuracy done")
        refusals = checks.check_bad_files(Path(folder) / "bad", environment)
        memory = checks.check_memory(files, num_memory_requests, MEMORY_SAMPLES, environment)
    found = [
        *targets.shape_targets(shapes),
        targets.cache_target(hit),
        *targets.trace_targets(traces),
        targets.accuracy_target(accuracy),
        *targets.bad_file_targets(refusals),
        targets.memory_target(memory, num_memory_requests),
    ]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": _command(options),
        "machine": _machine(),
        "files": {
            video.name: f"{video.num_frames // video.fps / 60:.3g} min of {video.width}x{video.height}"
            for video, _ in videos
        },
        "shapes": {
            "costs": {
                file: {
                    shape: {
                        reader: {"failure": cost} if isinstance(cost, str) else asdict(cost)
                        for reader, cost in row.items()
                    }
                    for shape, row in rows.items()
                }
                for file, rows in shapes.costs.items()
            },
            "versions": shapes.versions,
            "unit_costs_ms": shapes.unit_costs_ms,
        },
        "traces": {
            group: {way: {"failure": cost} if isinstance(cost, str) else asdict(cost) for way, cost in ways.items()}
            for group, ways in traces.items()
        },
        "cache_hit": asdict(hit),
        "accuracy": {name: asdict(result) for name, result in accuracy.items()},
        "bad_files": {kind: asdict(refusal) for kind, refusal in refusals.items()},
        "memory_rss_bytes": memory,
        "targets": [{**asdict(target), "passed": target.passed} for target in found],
    }


def _measure_traces(
    scale: Scale, video: tuple[LongVideo, Path], run_name: str, has_baseline: bool
) -> dict[str, dict[str, costs.TraceCost | str]]:
    traces: dict[str, dict[str, costs.TraceCost | str]] = {}
    for num_rollouts in scale.groups:
        name = f"{run_name}-{num_rollouts}"
        measure = partial(costs.measure_trace, *video, num_rollouts=num_rollouts, repetitions=scale.trace_repetitions)
        ways = {
            "uncached": measure(SHARED, run_name=f"{name}-off", cache_bytes=0),
            "exact": measure(SHARED, run_name=f"{name}-exact"),
            "grid": measure(SHARED, run_name=f"{name}-grid", grid_seconds=GRID_SECONDS),
        }
        if has_baseline:
            ways["qwen"] = measure("qwen", run_name=f"{name}-qwen")
        traces[f"G={num_rollouts}"] = ways
    return traces


def _command(options: argparse.Namespace) -> str:
    """The command that measures the same; its folders are left out, for they are of one machine."""
    command = ["python", "-m", "benchmarks.video_io"]
    for name, value in vars(options).items():
        if name in ("out", "cache_dir", "no_gate") or value == _parser().get_default(name):
            continue
        values = [] if value is True else value if isinstance(value, list) else [value]
        command += [f"--{name.replace('_', '-')}", *map(str, values)]
    return " ".join(command)


def _machine() -> dict[str, Any]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu,
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


if __name__ == "__main__":
    sys.exit(main())
