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
    """Draw the `PLOTS`: a point with its 95 % interval for each result.

    Returns:
        The files. There is none where no result has an accuracy and that cost.

    Raises:
        UsageError: one cannot be written.
    """
    return [path for name, axis in PLOTS.items() if (path := _write_plot(results, folder / name, *axis)) is not None]


def _write_plot(results: Results, path: Path, cost: str, label: str) -> Path | None:
    drawn = {
        name: result
        for name, result in results.items()
        if result["overall"]["accuracy"] is not None and result["overall"].get(cost) is not None
    }
    if not drawn:
        return None
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    methods = list(dict.fromkeys(method_label(result["protocol"]) for result in drawn.values()))
    costs = [result["overall"][cost] for result in drawn.values()]
    with matplotlib.rc_context({"text.parse_math": False}):  # names may hold dollar signs
        figure = Figure(figsize=(7, 5), layout="constrained")
        axes = figure.add_subplot()
        for name, result in drawn.items():
            colour = f"C{methods.index(method_label(result['protocol']))}"
            _draw_point(axes, name, result["overall"], result["overall"][cost], colour)
        if len(methods) > 1:
            for number, method in enumerate(methods):
                axes.plot([], "o", color=f"C{number}", label=method)
            axes.legend(fontsize="small")
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


def _draw_point(axes: Any, name: str, figures: Mapping[str, Any], cost: float, colour: str) -> None:
    accuracy, interval = 100 * figures["accuracy"], figures["intervals"]["accuracy"]
    error = None if interval is None else [[accuracy - 100 * interval[0]], [100 * interval[1] - accuracy]]
    axes.errorbar(cost, accuracy, yerr=error, fmt="o", color=colour, markersize=8, elinewidth=1.2, capsize=3)
    axes.annotate(name, (cost, accuracy), xytext=(6, 4), textcoords="offset points", fontsize="small")
