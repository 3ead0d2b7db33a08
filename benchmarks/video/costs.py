"""CPU time of every reader for every kind of request, of cache hits, and of the requests of a whole group."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.video.long_files import LongVideo
from benchmarks.video.requests import SHAPES, Request, Shape, group_trace, make_request
from benchmarks.video.worker import SHARED, MissingReader, Worker, WorkFailed

SLOW_READERS = frozenset({"qwen", "torchcodec_cold", "torchcodec_warm", "decord"})
SLOW_SHAPES = frozenset({"U128"})
"""Where both meet, a request takes many seconds and is repeated less often."""

SECONDS_PER_REQUEST, SECONDS_PER_TRACE = 180.0, 1200.0
"""A reader that takes longer is killed."""
CACHE_BYTES = 2 << 30


def cache_environment(cache_bytes: int = CACHE_BYTES) -> dict[str, str]:
    """The variable that sets the size of a process's frame cache."""
    return {"VVT_FRAME_CACHE_BYTES": str(cache_bytes)}


@dataclass(frozen=True, slots=True)
class Cost:
    """Median CPU time over the repetitions of one kind of request, and frames that were wrong in any of them."""

    cpu_ms: float
    repetitions: int
    asked_frames: int
    wrong_frames: int


@dataclass(frozen=True, slots=True)
class ShapeCosts:
    """By file, shape and reader: costs, or why there is none."""

    costs: dict[str, dict[str, dict[str, Cost | str]]]
    versions: dict[str, str]


def measure_shapes(
    videos: Sequence[tuple[LongVideo, Path]],
    shapes_of: Mapping[str, Sequence[str]],
    readers: Sequence[str],
    repetitions: int,
    slow_repetitions: int,
) -> ShapeCosts:
    """Ask every reader the same requests, in turns, so that what disturbs the machine disturbs all alike."""
    workers: dict[str, Worker] = {}
    versions: dict[str, str] = {}
    costs: dict[str, dict[str, dict[str, Cost | str]]] = {}
    missing: dict[str, Cost | str] = {}
    for reader in readers:
        try:
            workers[reader] = Worker(reader)
            versions[reader] = workers[reader].version
        except MissingReader as error:
            missing[reader] = f"missing: {error}"
    try:
        for video, path in videos:
            costs[video.name] = {}
            for shape in (shape for shape in SHAPES if shape.name in shapes_of[video.name]):
                rng = np.random.default_rng([0, SHAPES.index(shape)])
                requests = [
                    make_request(str(path), video.num_frames, video.fps, shape, rng) for _ in range(repetitions)
                ]
                measured = _measure_row(video, shape, requests, workers, slow_repetitions)
                costs[video.name][shape.name] = missing | measured
                progress(f"{video.name} {shape.name} done")
    finally:
        for worker in workers.values():
            worker.close()
    return ShapeCosts(costs, versions)


def _measure_row(
    video: LongVideo,
    shape: Shape,
    requests: Sequence[Request],
    workers: dict[str, Worker],
    slow_repetitions: int,
) -> dict[str, Cost | str]:
    cpu: dict[str, list[float]] = {reader: [] for reader in workers}
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
                work = workers[reader].run([[request]], SECONDS_PER_REQUEST)
            except WorkFailed as failure:
                failures[reader] = str(failure)
                if failure.kind in ("Hang", "Crash"):
                    workers[reader] = Worker(reader)
                continue
            if number > 0:
                cpu[reader].append(work.cpu_seconds * 1000)
                asked[reader] += len(request.indices)
                wrong[reader] += count_wrong(video, [[request]], work.numbers)
    return failures | {
        reader: Cost(statistics.median(cpu[reader]), len(cpu[reader]), asked[reader], wrong[reader])
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


def measure_cache_hit(video: LongVideo, path: Path, repetitions: int) -> float:
    """CPU milliseconds per frame of a window of 16 frames that `decode_frames` has just decoded, asked 20 times; the
    median of the repetitions."""
    times_each = 20
    shape = SHAPES[2]
    cpu = []
    with Worker(SHARED, cache_environment()) as worker:
        rng = np.random.default_rng(3)
        for _ in range(repetitions):
            request = make_request(str(path), video.num_frames, video.fps, shape, rng)
            worker.run([[request]])
            work = worker.run([[request] * times_each])
            cpu.append(work.cpu_seconds * 1000 / (times_each * shape.num_frames))
    return statistics.median(cpu)


@dataclass(frozen=True, slots=True)
class TraceCost:
    """Medians for all requests of one group, begun with an empty cache."""

    cpu_seconds: float
    wall_seconds: float
    repetitions: int
    wrong_frames: int


def measure_trace(
    video: LongVideo,
    path: Path,
    reader: str,
    *,
    num_rollouts: int,
    repetitions: int,
    cache_bytes: int = CACHE_BYTES,
) -> TraceCost | str:
    """A group of rollouts at once through `decode_frames`, or one request after the other for another reader."""
    cpu, wall, wrong = [], [], 0
    for repetition in range(repetitions):
        rollouts = group_trace(str(path), video.num_frames, video.fps, num_rollouts, seed=repetition)
        try:
            with Worker(reader, cache_environment(cache_bytes)) as worker:
                work = worker.run(rollouts, SECONDS_PER_TRACE)
        except (MissingReader, WorkFailed) as error:
            return str(error)
        cpu.append(work.cpu_seconds)
        wall.append(work.wall_seconds)
        wrong += count_wrong(video, rollouts, work.numbers)
    progress(f"group of {num_rollouts} by {reader} done")
    return TraceCost(statistics.median(cpu), statistics.median(wall), repetitions, wrong)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
