"""The joined segments as a picture: what each kind of process and each folder held, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.soak.growth import ALL, Sample, all_folders, all_kinds, of_folder, of_processes
from benchmarks.soak.segments import Segment

_MOST_POINTS = 60
"""Of a line over all segments, so that the file stays small however long the soak is."""
_MOST_KINDS = 8
_SINCE_START = "memory gained, MB"


def draw(segments: Sequence[Segment], path: Path) -> None:
    """Write an SVG. Segments stand one behind the other, parted by lines; ticks at the very top are faults."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "soak"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    segments = [segment for segment in segments if segment.samples]
    samples = [sample for segment in segments for sample in segment.samples]
    memory = {kind: of_processes(kind, "memory_mb") for kind in all_kinds(segments)}
    largest = sorted(memory, key=lambda kind: -max(map(memory[kind], samples)))[:_MOST_KINDS]
    panels: list[tuple[str, dict[str, Callable[[Sample], float]]]] = [
        (_SINCE_START, {kind: memory[kind] for kind in largest}),
        ("open handles", {kind: of_processes(kind, "handles") for kind in largest}),
        ("threads", {kind: of_processes(kind, "threads") for kind in largest}),
        (
            "shared memory and folders, MB",
            {"mapped shared memory": of_processes(ALL, "shared_mb")}
            | {folder: of_folder(folder) for folder in all_folders(segments)},
        ),
    ]
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 10), sharex=True, layout="constrained")
    for axis, (label, lines) in zip(axes, panels, strict=True):
        for number, (name, value) in enumerate(lines.items()):
            start, all_steps, all_values = 0, list[float](), list[float]()
            for segment in segments:
                steps = [start + sample["step"] - segment.samples[0]["step"] for sample in segment.samples]
                base = value(segment.samples[0]) if label == _SINCE_START else 0.0
                values = [value(sample) - base for sample in segment.samples]
                most = max(1, round(_MOST_POINTS * len(steps) / len(samples)))
                all_steps += [*_thinned(steps, most), math.nan]  # a gap: one line takes half the file
                all_values += [*_thinned(values, most), math.nan]
                start += segment.steps
            axis.plot(all_steps, all_values, color=f"C{number}", linewidth=1, label=name)
        start = 0
        for segment in segments:
            axis.axvline(start, color="0.8", linewidth=0.8, zorder=0)
            start += segment.steps
        axis.set_ylabel(label)
        if label != _SINCE_START:
            axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    axes[0].vlines(
        _fault_steps(segments), 0.97, 1, transform=axes[0].get_xaxis_transform(), color="#d1495b", linewidth=0.8
    )
    axes[-1].set_xlabel("steps")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _fault_steps(segments: Sequence[Segment]) -> list[int]:
    """Of all faults, counted over the segments."""
    steps, start = [], 0
    for segment in segments:
        steps += [start + fault["step"] - segment.samples[0]["step"] for fault in segment.faults]
        start += segment.steps
    return steps


def _thinned(values: Sequence[float], most: int) -> list[float]:
    """Means over runs of neighbours, so that at most so many are left."""
    return [float(part.mean()) for part in np.array_split(np.asarray(values, float), min(len(values), most))]
