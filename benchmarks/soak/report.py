"""The result as text: what was soaked, and a table of growth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from benchmarks.scale.table import table
from benchmarks.soak.growth import ALL, BOUNDS, PROCESS_MEASURES, WARM_UP_STEPS, Growth, Slope, Verdict
from benchmarks.soak.segments import Segment, soaked_hours

_UNITS = {"memory_mb": "MB", "handles": "handles", "threads": "threads", "folder": "MB"}


def report(segments: Sequence[Segment], growth: Sequence[Growth]) -> str:
    """What was soaked, what grew, and the table of all quantities."""
    return f"{_soaked(segments)}\n\n{_table(growth)}\n{_findings(growth)}\n"


def _soaked(segments: Sequence[Segment]) -> str:
    watched = [segment for segment in segments if segment.samples]
    steps = sum(segment.steps for segment in watched)
    commits = ", ".join(dict.fromkeys(segment.start["commit"] for segment in watched))
    faults = Counter(fault["fault"] for segment in watched for fault in segment.faults)
    told = ", ".join(f"{name} ({count})" for name, count in sorted(faults.items())) or "none"
    return (
        f"Soaked so far: {60 * soaked_hours(watched):.0f} minutes, {steps} steps in {len(watched)} segments, "
        f"commits {commits}. Faults: {told}."
    )


def _table(growth: Sequence[Growth]) -> str:
    kinds: dict[str, dict[str, Growth]] = {}
    for each in growth:
        kinds.setdefault(each.of, {})[each.measure] = each
    processes = {kind: measures for kind, measures in kinds.items() if "handles" in measures}
    order = sorted(processes, key=lambda kind: (kind != ALL, -processes[kind]["memory_mb"].mean))
    rows = [[kind, *(cell for measure in PROCESS_MEASURES for cell in _cells(kinds[kind][measure]))] for kind in order]
    head = ["processes", "memory, MB", "a step", "handles", "a step", "threads", "a step"]
    folders = [[kind, *_cells(kinds[kind]["folder"])] for kind in kinds if "folder" in kinds[kind]]
    return table(head, rows) + "\n" + table(["shared memory and folders", "MB", "a step"], folders)


def _cells(growth: Growth) -> list[str]:
    interval = _interval(growth.slope)
    return [f"{growth.mean:.0f}", f"**{interval}**" if growth.verdict is Verdict.GROWS else interval]


def _interval(slope: Slope | None) -> str:
    if slope is None or math.isinf(slope.error):
        return "?"
    low, high = slope.interval()
    return f"{_number(slope.per_step)} [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    return "0" if abs(value) < 5e-5 else f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


def _findings(growth: Sequence[Growth]) -> str:
    bounds = ", ".join(f"{bound:g} {_UNITS[name]}" for name, bound in BOUNDS.items() if name != "folder")
    counts = Counter(each.verdict for each in growth)
    lines = [
        f"Mean, and growth per step with its 95 % interval, after {WARM_UP_STEPS} steps of warm-up in each segment. "
        f"Of {len(growth)} quantities: no growth found, {counts[Verdict.NONE]}; growth below the bound ({bounds} a "
        f"step; five times that for all processes), {counts[Verdict.BELOW]}; too short to tell, "
        f"{counts[Verdict.OPEN]}; growth above the bound, {counts[Verdict.GROWS]}."
    ]
    lines += [f"- **{sentence(each)}**" for each in growth if each.verdict is Verdict.GROWS]
    return "\n".join(lines)


def sentence(growth: Growth) -> str:
    assert growth.slope is not None
    measure = "" if growth.measure == "folder" else f", {growth.measure.removesuffix('_mb')}"
    unit = _UNITS[growth.measure]
    return f"{growth.of}{measure}: grows by {_interval(growth.slope)} {unit} a step"
