"""Accuracy against what it costs, as pictures: visual tokens, and frames, per item."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import writing
from verl_video_tools.evaluation.tables import ADVICE, Results, method_label

PLOTS = {
    "accuracy_tokens.png": ("visual_tokens", "visual tokens per item"),
    "accuracy_frames.png": ("frames", "frames per item, initial and from tools"),
}
"""Files, and what stands on their horizontal axes: a figure of results, and its label."""

_LOGARITHMIC_FROM = 8
"""Costs so many times apart are drawn on a logarithmic axis."""


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Draw the `PLOTS`: a point with its 95 % interval for each result; of a single one also the groups of its first
    grouping that has several.

    Returns:
        The files. There is none where no result has an accuracy and that cost.

    Raises:
        UsageError: one cannot be written.
    """
    return [path for name, axis in PLOTS.items() if (path := _write_plot(results, folder / name, *axis)) is not None]


def _write_plot(results: Results, path: Path, cost: str, label: str) -> Path | None:
    points = [
        (name, method_label(result["protocol"]), result["overall"])
        for name, result in results.items()
        if _has(result["overall"], cost)
    ]
    if not points:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    methods = list(dict.fromkeys(method for _, method, _ in points))
    for name, method, overall in points:
        _draw_point(axes, name, overall, cost, f"C{methods.index(method)}", size=8)
    if len(points) == 1:
        groupings = results[points[0][0]]["groups"].values()
        for group, figures in next((groups for groups in groupings if len(groups) > 1), {}).items():
            if _has(figures, cost):
                _draw_point(axes, group, figures, cost, "C7", size=4)
    if len(methods) > 1:
        for number, method in enumerate(methods):
            axes.plot([], "o", color=f"C{number}", label=method)
        for text in axes.legend(fontsize="small").get_texts():
            text.set_parse_math(False)  # names may hold dollar signs
    costs = [overall[cost] for *_, overall in points]
    if min(costs) > 0 and max(costs) >= _LOGARITHMIC_FROM * min(costs):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy in percent, 95 % intervals")
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    with writing(path.parent, ADVICE):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the library's version in it, the same result gives the same file.
        figure.savefig(path, dpi=120, metadata={"Software": None})
    return path


def _has(figures: Mapping[str, Any], cost: str) -> bool:
    return figures["accuracy"] is not None and figures.get(cost) is not None


def _draw_point(axes: Any, name: str, figures: Mapping[str, Any], cost: str, color: str, size: int) -> None:
    place = figures[cost], 100 * figures["accuracy"]
    axes.plot(*place, "o", color=color, markersize=size)
    interval = figures.get("intervals", {}).get("accuracy")
    if interval is not None:
        below, above = place[1] - 100 * interval[0], 100 * interval[1] - place[1]
        axes.errorbar(*place, yerr=[[below], [above]], color=color, elinewidth=1.2, capsize=3, alpha=0.6)
    axes.annotate(name, place, xytext=(6, 4), textcoords="offset points", fontsize="small", parse_math=False)
