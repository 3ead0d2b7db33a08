"""Where a step's time goes, as a picture: a bar for each method, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PARTS = {
    "gpu_rollout": ("rollouts on GPUs (modelled)", "#2f6f9f"),
    "gpu_training": ("training (modelled)", "#7fb2d6"),
    "host_wait": ("GPUs wait for hosts", "#d1495b"),
    "queue": ("queue", "#edae49"),
    "tensors": ("tensors of images (modelled)", "#9a6fb0"),
}


def draw(steps: Sequence[Mapping[str, Any]], path: Path, *, nodes: Sequence[int]) -> None:
    """Write an SVG: one panel for each number of nodes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "bench-scale"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(nodes), figsize=(5.2 * len(nodes), 4.2), layout="constrained", squeeze=False)
    for panel, count in zip(panels[0], nodes, strict=True):
        rows = [step for step in steps if step["nodes"] == count and step["gpu_speed"] == 1.0]
        rows.sort(key=lambda step: (step["method"], step["version"] == "before"), reverse=True)
        names = [f"{step['method']}, {step['version']}" for step in rows]
        left = [0.0] * len(rows)
        for part, (label, colour) in _PARTS.items():
            seconds = [step[part] for step in rows]
            panel.barh(names, seconds, left=left, color=colour, label=label)
            left = [start + more for start, more in zip(left, seconds, strict=True)]
        panel.set_xlabel("seconds of a step")
        panel.set_title(f"{count} node{'s' if count > 1 else ''} of 8 GPUs", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
