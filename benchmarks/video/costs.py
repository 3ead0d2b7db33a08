"""CPU time of every reader for every kind of request, of cache hits, and of the requests of a whole group."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.video.limit import PacketMap, measure_unit_costs
from benchmarks.video.long_files import LongVideo
from benchmarks.video.requests import SHAPES, Request, Shape, group_trace, make_request
from benchmarks.video.worker import SHARED, MissingReader, Worker, WorkFailed

SLOW_READERS = frozenset({"qwen", "torchcodec_cold", "torchcodec_warm", "decord"})
SLOW_SHAPES = frozenset({"U128"})
"""Where both meet, a request takes many seconds and is repeated less often."""

CACHE_BYTES = 2 << 30


def cache_environment(run_name: str, cache_bytes: int = CACHE_BYTES, grid_seconds: float = 0.0) -> dict[str, str]:
    """Variables that give a process its own empty frame cache."""
    return {
        "VVT_FRAME_CACHE": run_name,
        "VVT_FRAME_CACHE_BYTES": str(cache_bytes),
        "VVT_TIME_GRID_SECONDS": str(grid_seconds),
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the repetitions of one kind of request.

    Attributes:
        wrong_frames: of `asked_frames`, over all repetitions; None for the limit, which reads nothing.
    """

    cpu_ms: float
    wall_ms: float
    repetitions: int
    asked_frames: int = 0
    wrong_frames: int | None = None


@dataclass(frozen=True, slots=True)
class ShapeCosts:
    """By file, shape and reader: costs, or why there is none. The reader `limit` is the decode limit."""

    costs: dict[str, dict[str, dict[str, Cost | str]]]
    versions: dict[str, str]
    unit_costs_ms: dict[str, dict[str, float]]


def measure_shapes(
    videos: Sequence[tuple[LongVideo, Path]],
    shapes_of: Mapping[str, Sequence[str]],
    readers: Sequence[str],
    repetitions: int,
    slow_repetitions: int,
    time_limit_seconds: float,
) -> ShapeCosts:
    """Ask every reader the same requests, in turns, so that what disturbs the machine disturbs all alike."""
    workers: dict[str, Worker] = {}
    versions: dict[str, str] = {}
    costs: dict[str, dict[str, dict[str, Cost | str]]] = {}
    units: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    for reader in readers:
        try:
            workers[reader] = Worker(reader)
            versions[reader] = workers[reader].version
        except MissingReader as error:
            missing[reader] = f"missing: {error}"
    try:
        for video, path in videos:
            unit_costs = measure_unit_costs(path, num_stretches=max(2, repetitions))
            units[video.name] = {
                "packet": unit_costs.packet_seconds * 1000,
                "scaling": unit_costs.scale_seconds * 1000,
            }
            packet_map = PacketMap(path)
            costs[video.name] = {}
            for shape in (shape for shape in SHAPES if shape.name in shapes_of[video.name]):
                rng = np.random.default_rng([0, SHAPES.index(shape)])
                requests = [
                    make_request(str(path), video.num_frames, video.fps, shape, rng) for _ in range(repetitions)
                ]
                limits = [packet_map.limit_seconds(request, unit_costs) * 1000 for request in requests]
                row: dict[str, Cost | str] = dict(missing)
                row["limit"] = Cost(statistics.median(limits), statistics.median(limits), len(limits))
                row |= _measure_row(video, shape, requests, workers, slow_repetitions, time_limit_seconds)
                costs[video.name][shape.name] = row
                progress(f"{video.name} {shape.name} done")
    finally:
        for worker in workers.values():
            worker.close()
    return ShapeCosts(costs, versions, units)


def _measure_row(
    video: LongVideo,
    shape: Shape,
    requests: Sequence[Request],
    workers: dict[str, Worker],
    slow_repetitions: int,
    time_limit_seconds: float,
) -> dict[str, Cost | str]:
    cpu: dict[str, list[float]] = {reader: [] for reader in workers}
    wall: dict[str, list[float]] = {reader: [] for reader in workers}
    asked, wrong = dict.fromkeys(workers, 0), dict.fromkeys(workers, 0)
    failures: dict[str, Cost | str] = {}
    # Whatever is done once per process or, by the warm readers, once per file.
    warm_up = make_request(requests[0].path, video.num_frames, video.fps, SHAPES[0], np.random.default_rng(7))
    for number, request in enumerate([warm_up, *requests]):
        for reader in list(workers):
            is_slow = reader in SLOW_READERS and shape.name in SLOW_SHAPES
            if reader in failures or (is_slow and number > slow_repetitions):
                continue
            try:
                work = workers[reader].run([[request]], time_limit_seconds=time_limit_seconds)
            except WorkFailed as failure:
                failures[reader] = str(failure)
                if failure.kind in ("Hang", "Crash"):
                    workers[reader] = Worker(reader)
                continue
            if number > 0:
                cpu[reader].append(work.cpu_seconds * 1000)
                wall[reader].append(work.wall_seconds * 1000)
                asked[reader] += len(request.indices)
                wrong[reader] += count_wrong(video, [[request]], work.numbers)
    return failures | {
        reader: Cost(
            statistics.median(cpu[reader]),
            statistics.median(wall[reader]),
            len(cpu[reader]),
            asked[reader],
            wrong[reader],
        )
        for reader in workers
        if reader not in failures
    }


def count_wrong(video: LongVideo, rollouts: Sequence[Sequence[Request]], numbers: list[list[list[int]]]) -> int:
    """Frames that show another number than the one asked for."""
    return sum(
        number != video.number_of(index)
        for requests, seen in zip(rollouts, numbers, strict=True)
        for request, found in zip(requests, seen, strict=True)
        for index, number in zip(request.indices, found, strict=True)
    )


@dataclass(frozen=True, slots=True)
class CacheHit:
    """CPU time per frame of a window that was asked before; medians."""

    cpu_ms_per_frame: float
    wall_ms_per_frame: float
    repetitions: int


def measure_cache_hit(video: LongVideo, path: Path, repetitions: int, run_name: str) -> CacheHit:
    """Ask through `decode_frames` for 16 frames that were just decoded; 20 times per repetition."""
    times_each = 20
    shape = SHAPES[2]
    cpu, wall = [], []
    with Worker(SHARED, cache_environment(run_name)) as worker:
        rng = np.random.default_rng(3)
        for _ in range(repetitions):
            request = make_request(str(path), video.num_frames, video.fps, shape, rng)
            worker.run([[request]])
            work = worker.run([[request] * times_each])
            cpu.append(work.cpu_seconds * 1000 / (times_each * shape.num_frames))
            wall.append(work.wall_seconds * 1000 / (times_each * shape.num_frames))
    return CacheHit(statistics.median(cpu), statistics.median(wall), repetitions)


@dataclass(frozen=True, slots=True)
class TraceCost:
    """Medians for all requests of one group, begun with an empty cache.

    `wrong_frames` is None with a time grid: then other frames than those asked for are what the user chose.
    """

    cpu_seconds: float
    wall_seconds: float
    repetitions: int
    wrong_frames: int | None


def measure_trace(
    video: LongVideo,
    path: Path,
    reader: str,
    *,
    num_rollouts: int,
    repetitions: int,
    run_name: str,
    grid_seconds: float = 0.0,
    cache_bytes: int = CACHE_BYTES,
) -> TraceCost | str:
    """A group of rollouts at once through `decode_frames`, or one request after the other for another reader."""
    cpu, wall, wrong = [], [], 0
    for repetition in range(repetitions):
        rollouts = group_trace(str(path), video.num_frames, video.fps, num_rollouts, seed=repetition)
        environment = cache_environment(f"{run_name}-{repetition}", cache_bytes, grid_seconds)
        try:
            with Worker(reader, environment) as worker:
                work = worker.run(rollouts, time_limit_seconds=1200.0)
        except (MissingReader, WorkFailed) as error:
            return str(error)
        cpu.append(work.cpu_seconds)
        wall.append(work.wall_seconds)
        wrong += count_wrong(video, rollouts, work.numbers)
    progress(f"group of {num_rollouts} by {reader}, grid {grid_seconds} s, done")
    return TraceCost(statistics.median(cpu), statistics.median(wall), repetitions, None if grid_seconds else wrong)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
