"""What the figures must reach. Ratios are of CPU time in the same run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.video.checks import Accuracy, Refusal
from benchmarks.video.costs import CacheHit, Cost, ShapeCosts, TraceCost
from benchmarks.video.requests import WINDOWS

COLD_LIMITS = {
    "A": dict.fromkeys(WINDOWS, 0.30) | {"U8": 0.5, "U32": 0.33, "U128": 0.5},
    "B": dict.fromkeys(("W4", "W16", "W32"), 0.33),
}
"""Ours, cold, against qwen-vl-utils."""

WARM_LIMITS = dict.fromkeys(("W4", "W16", "W32"), 0.6) | dict.fromkeys(("S1", "U8", "U32", "U128"), 0.7)
"""Ours, warm, against torchcodec in exact mode, warm."""

DECODE_LIMIT_RATIO, DECODE_LIMIT_MEDIAN_RATIO = 1.8, 1.3
CACHE_HIT_MS_PER_FRAME = 0.3
TRACE_LIMITS = {"G=4 exact": 1 / 6, "G=4 grid": 1 / 8, "G=8 grid": 1 / 12}
BAD_FILE_SECONDS = 1.0
TYPED_ERRORS = frozenset({"UnreadableVideoError", "VideoNotFoundError"})
MEMORY_GROWTH = 0.05
"""Of resident memory over the second half of the requests; in the first half caches and allocators fill."""


@dataclass(frozen=True, slots=True)
class Target:
    """One figure and the most that it may be; `value` is None where it could not be measured."""

    name: str
    value: float | None
    limit: float
    note: str = ""

    @property
    def passed(self) -> bool | None:
        return None if self.value is None else self.value <= self.limit


def shape_targets(measured: ShapeCosts) -> Iterator[Target]:
    for file, shapes in measured.costs.items():
        for shape, row in shapes.items():
            if shape in COLD_LIMITS.get(file, {}):
                limit = COLD_LIMITS[file][shape]
                yield _ratio(f"{file} {shape} cold / qwen-vl-utils", row, "ours_cold", "qwen", limit)
            yield _ratio(
                f"{file} {shape} warm / torchcodec exact warm", row, "ours_warm", "torchcodec_warm", WARM_LIMITS[shape]
            )
    to_limit = [
        _ratio(f"{file} {shape} {state} / decode limit", row, f"ours_{state}", "limit", DECODE_LIMIT_RATIO)
        for state in ("cold", "warm")
        for file, shapes in measured.costs.items()
        for shape, row in shapes.items()
    ]
    yield from to_limit
    values = [target.value for target in to_limit if target.value is not None]
    median = statistics.median(values) if values else None
    yield Target("median over shapes / decode limit", median, DECODE_LIMIT_MEDIAN_RATIO)
    wrong = [
        cost.wrong_frames
        for shapes in measured.costs.values()
        for row in shapes.values()
        for reader, cost in row.items()
        if reader.startswith("ours") and isinstance(cost, Cost) and cost.wrong_frames is not None
    ]
    yield Target("wrong frames of ours in all requests above", sum(wrong) if wrong else None, 0)


def _ratio(name: str, row: dict[str, Cost | str], ours: str, theirs: str, limit: float) -> Target:
    our_cost, their_cost = row.get(ours, "not run"), row.get(theirs, "not run")
    if isinstance(our_cost, str):
        return Target(name, None, limit, our_cost)
    if isinstance(their_cost, str):
        return Target(name, None, limit, their_cost)
    floor = row["limit"]
    note = ""
    if isinstance(floor, Cost) and theirs != "limit":
        note = f"the decode limit alone is {floor.cpu_ms / their_cost.cpu_ms:.2f}"
    return Target(name, our_cost.cpu_ms / their_cost.cpu_ms, limit, note)


def cache_target(hit: CacheHit) -> Target:
    return Target("cache hit, ms per frame", hit.cpu_ms_per_frame, CACHE_HIT_MS_PER_FRAME)


def trace_targets(traces: dict[str, dict[str, TraceCost | str]]) -> Iterator[Target]:
    """`traces` by group ("G=4") and way ("qwen", "exact", "grid", ...)."""
    for group, ways in traces.items():
        baseline = ways.get("qwen", "not run")
        for way, cost in ways.items():
            limit = TRACE_LIMITS.get(f"{group} {way}")
            if limit is None:
                continue
            name = f"group trace {group} {way} / qwen-vl-utils"
            if isinstance(cost, str) or isinstance(baseline, str):
                yield Target(name, None, limit, cost if isinstance(cost, str) else str(baseline))
            else:
                yield Target(name, cost.cpu_seconds / baseline.cpu_seconds, limit)
        exact = ways.get("exact")
        if isinstance(exact, TraceCost) and exact.wrong_frames is not None:
            yield Target(f"group trace {group} exact, wrong frames", exact.wrong_frames, 0)


def accuracy_target(accuracy: dict[str, Accuracy]) -> Target:
    asked = sum(result.asked for result in accuracy.values())
    right = sum(result.right for result in accuracy.values())
    firsts = [f"{name} {result.first_wrong}" for name, result in accuracy.items() if result.first_wrong]
    return Target(
        f"wrong frames, {asked} asked of {len(accuracy)} files by 8 requesters in 4 processes",
        asked - right,
        0,
        "; ".join(firsts),
    )


def bad_file_targets(refusals: dict[str, Refusal]) -> Iterator[Target]:
    for kind, refusal in refusals.items():
        seconds = refusal.seconds if refusal.error in TYPED_ERRORS else math.inf
        yield Target(f"bad file ({kind}), seconds to a typed error", seconds, BAD_FILE_SECONDS, refusal.error)


def memory_target(rss_samples_bytes: list[int], num_requests: int) -> Target:
    half = rss_samples_bytes[(len(rss_samples_bytes) - 1) // 2]
    growth = rss_samples_bytes[-1] / half - 1
    return Target(f"growth of memory over the second half of {num_requests} requests", growth, MEMORY_GROWTH)
