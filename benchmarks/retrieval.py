"""Frames by text: are they the right ones, and what do the first and the later queries on a video cost?

Two parts, both with the tiny CLIP of the demonstration on one process's CPU:

recall   128 candidates over each of some held-out synthetic videos, one query per event and a few ways to ask: do the
         four best frames show it?
cold     queries on a video of ten minutes (640 x 360): the first decodes and encodes its candidates, later ones only
         their text

Usage: python -m benchmarks.retrieval [--out outputs/bench_retrieval] [--cache-dir DIR] [--page docs/retrieval.md]

With `--page` the tables replace what stands between the page's markers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.pages import write_between
from benchmarks.video.long_files import LongVideo, write_long_video
from verl_video_tools.services.retrieval import RetrievalConfig, RetrievalService, local
from verl_video_tools.synthetic import clip_dir
from verl_video_tools.synthetic.spec import random_spec
from verl_video_tools.synthetic.world import VideoSpec, label_at, render

BEGIN, END = "<!-- bench-retrieval: begin -->", "<!-- bench-retrieval: end -->"

NUM_CANDIDATES, NUM_FRAMES = 128, 4
"""VideoBrain's (arXiv 2602.04094): so many candidates per search, of which the best so many are shown."""
VALIDATION_SEED = 5_000_000
QUERIES = ("{}", "a {}", "the frame with the {}")
LONG_VIDEO = LongVideo("retrieval", 640, 360, copy_seconds=20, copies=30)
DEADLINE_SECONDS = 300.0
MIN_RECALL, MIN_SPEEDUP = 0.95, 50.0


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


def tables(results: dict[str, Any]) -> str:
    """Markdown of a run's figures."""
    recall, costs = results["recall"], results["costs"]
    lines = ["| query on 10 minutes of 640 x 360, 128 candidates | CPU ms | latency ms |", "|---|---|---|"]
    lines += [f"| {kind} | {cost['cpu_ms']:.1f} | {cost['latency_ms']:.1f} |" for kind, cost in costs.items()]
    return "\n".join(
        [
            *lines,
            "",
            f"A later query costs {results['speedup']:.0f} times less CPU time than the first.",
            f"Recall@4 on the synthetic world: {recall['recall_at_4']:.3f} over {recall['queries']} queries; "
            f"{recall['precision_at_4']:.2f} of the frames shown are right, {recall['chance']:.2f} would be by chance.",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("outputs/bench_retrieval"))
    parser.add_argument("--cache-dir", type=Path, help="where the long video is kept; default: the output folder")
    parser.add_argument("--num-videos", type=int, default=40, help="synthetic videos for recall")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--page", type=Path, help="page to put the figures into")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cache_dir = options.cache_dir or options.out
    cache_dir.mkdir(parents=True, exist_ok=True)
    video = write_long_video(LONG_VIDEO, cache_dir)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recall = asyncio.run(measure_recall(options.num_videos, folder))
        costs = asyncio.run(measure_costs(video, LONG_VIDEO.num_frames, options.repetitions))
    speedup = costs["first"].cpu_ms / costs["later"].cpu_ms
    results = {
        "recall": asdict(recall),
        "costs": {kind: asdict(cost) for kind, cost in costs.items()},
        "speedup": speedup,
    }
    (options.out / "retrieval.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    text = tables(results)
    print(text)
    if options.page is not None:
        write_between(options.page, BEGIN, END, text)
    missed = [
        f"{name}: {value:.3g}, wanted at least {wanted:g}"
        for name, value, wanted in (
            ("recall@4", recall.recall_at_4, MIN_RECALL),
            ("later queries cheaper by", speedup, MIN_SPEEDUP),
        )
        if value < wanted
    ]
    print("\n".join(f"MISSED {line}" for line in missed), file=sys.stderr, end="\n" if missed else "")
    return int(bool(missed))


if __name__ == "__main__":
    import os

    os.environ["VVT_FRAME_CACHE_BYTES"] = "0"  # as in the actor; else the second first query would find its frames
    sys.exit(main())
