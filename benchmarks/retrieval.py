"""Frames by text: are they the right ones, and what do the first and the later queries on a video cost?

Two parts, both with the tiny CLIP of the demonstration on one process's CPU:

recall   128 candidates over each of some held-out synthetic videos, one query per event and a few ways to ask: do the
         four best frames show it?
cold     queries on a video of ten minutes (640 x 360): the first decodes and encodes its candidates, later ones only
         their text

Usage: python -m benchmarks.retrieval
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.video.long_files import LongVideo, write_long_video
from verl_video_tools.services.retrieval import RetrievalConfig, RetrievalService, local
from verl_video_tools.synthetic import clip_dir
from verl_video_tools.synthetic.world import VideoSpec, label_at, random_spec, render

NUM_CANDIDATES, NUM_FRAMES = 128, 4
"""VideoBrain's (arXiv 2602.04094): so many candidates per search, of which the best so many are shown."""
VALIDATION_SEED = 5_000_000
QUERIES = ("{}", "a {}", "the frame with the {}")
LONG_VIDEO = LongVideo("retrieval", 640, 360, copy_seconds=20, copies=30)
DEADLINE_SECONDS = 300.0
FOLDER = Path("outputs/bench_retrieval")
NUM_VIDEOS, REPETITIONS = 40, 3


@dataclass(frozen=True, slots=True)
class Recall:
    """How often the best frames are right.

    Attributes:
        recall_at_4: share of queries with the thing in at least one of the four best frames.
        precision_at_4: share of the best frames that show it.
        chance: share of all candidates that do.
    """

    queries: int
    recall_at_4: float
    precision_at_4: float
    chance: float


@dataclass(frozen=True, slots=True)
class Cost:
    """One kind of query: medians over its repetitions."""

    repetitions: int
    cpu_ms: float
    latency_ms: float


def candidates_of(num_frames: int) -> list[int]:
    """Evenly spread frame indices over a whole video."""
    return sorted({int(index) for index in np.linspace(0, num_frames - 1, NUM_CANDIDATES)})


def make_service() -> RetrievalService:
    return local(RetrievalConfig(model=str(clip_dir())))


async def measure_recall(num_videos: int, folder: Path) -> Recall:
    service = make_service()
    hits, shares, chances = [], [], []
    for number in range(num_videos):
        spec = random_spec(VALIDATION_SEED + number)
        path = folder / f"{number}.mp4"
        render(spec, path)
        candidates = candidates_of(spec.num_frames)
        for label in sorted({event.label for event in spec.events}):
            for query in QUERIES:
                best = await service.best_frames(
                    str(path), candidates, query.format(label), NUM_FRAMES, DEADLINE_SECONDS
                )
                right = _shares_showing(spec, best, label)
                hits.append(right > 0)
                shares.append(right)
                chances.append(_shares_showing(spec, candidates, label))
    return Recall(len(hits), float(np.mean(hits)), float(np.mean(shares)), float(np.mean(chances)))


def _shares_showing(spec: VideoSpec, frames: Sequence[int], label: str) -> float:
    return sum(label_at(spec, frame) == label for frame in frames) / len(frames)


async def measure_costs(video: Path, num_frames: int, repetitions: int) -> dict[str, Cost]:
    """Each repetition has a service that knows nothing; frames of a node's cache do not help either (see `main`)."""
    candidates = candidates_of(num_frames)
    costs: dict[str, list[tuple[float, float]]] = {}

    async def query(kind: str, service: RetrievalService, text: str) -> None:
        started_seconds, started_cpu_seconds = time.perf_counter(), time.process_time()
        await service.best_frames(str(video), candidates, text, NUM_FRAMES, DEADLINE_SECONDS)
        cpu_ms = (time.process_time() - started_cpu_seconds) * 1e3
        costs.setdefault(kind, []).append((cpu_ms, (time.perf_counter() - started_seconds) * 1e3))

    for _ in range(repetitions):
        service = make_service()
        await query("first", service, "a red circle")
        for number in range(5):
            await query("later", service, f"a blue square {number}")
    return {
        kind: Cost(len(values), median(cpu for cpu, _ in values), median(latency for _, latency in values))
        for kind, values in costs.items()
    }


def tables(recall: Recall, costs: dict[str, Cost]) -> str:
    """Markdown of a run's figures."""
    lines = ["| query on 10 minutes of 640 x 360, 128 candidates | CPU ms | latency ms |", "|---|---|---|"]
    lines += [f"| {kind} | {cost.cpu_ms:.1f} | {cost.latency_ms:.1f} |" for kind, cost in costs.items()]
    speedup = costs["first"].cpu_ms / costs["later"].cpu_ms
    return "\n".join(
        [
            *lines,
            "",
            f"A later query costs {speedup:.0f} times less CPU time than the first.",
            f"Recall@4 on the synthetic world: {recall.recall_at_4:.3f} over {recall.queries} queries; "
            f"{recall.precision_at_4:.2f} of the frames shown are right, {recall.chance:.2f} would be by chance.",
        ]
    )


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    video = write_long_video(LONG_VIDEO, FOLDER)
    with tempfile.TemporaryDirectory() as name:
        recall = asyncio.run(measure_recall(NUM_VIDEOS, Path(name)))
    text = tables(recall, asyncio.run(measure_costs(video, LONG_VIDEO.num_frames, REPETITIONS)))
    print(text)
    (FOLDER / "retrieval.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    import os

    os.environ["VVT_FRAME_CACHE_BYTES"] = "0"  # as in the actor; else the second first query would find its frames
    main()
