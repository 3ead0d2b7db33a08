"""Pictures of results: accuracy after each stage, and accuracy by what training cost. `tables.py` draws them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from examples.learning_curve.chosen import Chosen
from examples.learning_curve.equal_cost import COSTS, accuracy_at, largest_common, mean_of_runs
from examples.learning_curve.schedule import COMPARED, METHODS
from examples.learning_curve.stored import Result
from verl_video_tools.records.report import COLOURS

BY_STAGE, BY_COST = "learning.png", "learning_cost.png"
BARS = {"after SFT": COLOURS[5], "after RL": COLOURS[0], "after RFT": COLOURS[2]}
LINES = dict(zip((*METHODS, *COMPARED), (*COLOURS[:5], "#8a8f98", "#1c2430"), strict=True))
CHANCE = 0.25
_INK = "#1c2430"
_NUM_STRETCHES = 4
"""Between points of a line: runs are measured at every quarter."""


def by_stage(runs_of: Mapping[str, Sequence[Result]]) -> Figure:
    """A bar is the mean over a method's runs; its line is the 95 % interval of one run, or the range of several."""
    bars = [name for name in BARS if any(name in run["accuracy"] for runs in runs_of.values() for run in runs)]
    figure = Figure(figsize=(2.0 + 1.5 * len(runs_of), 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(bars)
    for place, runs in enumerate(runs_of.values()):
        own = [name for name in bars if any(name in run["accuracy"] for run in runs)]
        for number, name in enumerate(own):
            estimates = [run["accuracy"][name]["needs another look"] for run in runs if name in run["accuracy"]]
            means = [estimate["mean"] for estimate in estimates]
            mean = sum(means) / len(means)
            one = len(estimates) == 1
            low, high = (estimates[0]["low"], estimates[0]["high"]) if one else (min(means), max(means))
            x = place + (number - (len(own) - 1) / 2) * width
            axes.bar(x, mean, 0.9 * width, color=BARS[name])
            axes.errorbar(x, mean, [[mean - low], [high - mean]], color=_INK, capsize=3, linewidth=1)
            axes.annotate(f"{mean:.0%}", (x, high), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    counts = {method: len(runs) for method, runs in runs_of.items()}
    axes.set_xticks(
        range(len(counts)), [f"{method}\n{count} run{'s' * (count > 1)}" for method, count in counts.items()]
    )
    axes.set_title("Held-out accuracy where another look is needed\n(dotted: chance)", loc="left", fontsize=10)
    _finish(axes)
    keys = [Patch(color=BARS[name], label=name) for name in bars]
    axes.legend(handles=keys, frameon=False, ncols=len(keys), loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return figure


def by_cost(runs_of: Mapping[str, Sequence[Result]]) -> Figure:
    """Accuracy against tokens of training, generated ones and visual ones; a line for each method.

    It is the mean over the method's runs, with its interval, up to the largest cost that all of them have reached.
    """
    figure = Figure(figsize=(9.6, 4.2), dpi=120, layout="constrained")
    for axes, cost in zip(figure.subplots(1, 2, sharey=True), COSTS, strict=True):
        for method, runs in runs_of.items():
            curves = [run["cost"]["measurements"] for run in runs]
            end = largest_common(curves, cost)
            costs = [end * number / _NUM_STRETCHES for number in range(_NUM_STRETCHES + 1)]
            means = [mean_of_runs([accuracy_at(curve, cost, each) for curve in curves]) for each in costs]
            axes.errorbar(
                [each / 1000 for each in costs],
                [each.mean for each in means],
                [[each.mean - each.low for each in means], [each.high - each.mean for each in means]],
                color=LINES[method],
                marker="o",
                markersize=3,
                linewidth=1.5,
                elinewidth=0.8,
                capsize=2,
                label=method,
            )
        axes.set_xlabel(f"thousand {cost.replace('_', ' ')} of training")
        axes.set_xlim(left=0)
        _finish(axes)
    keys = [Line2D([], [], color=LINES[method], label=method) for method in runs_of]
    figure.legend(handles=keys, frameon=False, ncols=len(keys), loc="outside lower center", fontsize=8)
    return figure


def _finish(axes: Axes) -> None:
    axes.axhline(CHANCE, color="#5b6675", linestyle=":", linewidth=1)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.spines[["top", "right"]].set_visible(False)


def drawn(chosen: Chosen) -> dict[str, tuple[Any, Mapping[str, Sequence[Result]]]]:
    """Pictures that there are to be: name of the file, what draws it, and of which runs."""
    listed: dict[str, tuple[Any, Mapping[str, Sequence[Result]]]] = {}
    if chosen.is_complete:
        listed[BY_STAGE] = by_stage, {method: runs for method, runs in chosen.scheduled.items() if runs}
    costs = {method: [run for run in chosen.of(method) if "cost" in run] for method in LINES}
    if any(costs.values()):
        listed[BY_COST] = by_cost, {method: runs for method, runs in costs.items() if runs}
    return listed


def draw_all(chosen: Chosen, folder: Path) -> None:
    """Each picture holds the digest of what it shows, as `digest` makes it."""
    for name, (draw, runs_of) in drawn(chosen).items():
        draw(runs_of).savefig(folder / name, metadata={"Description": digest(runs_of)})


def digest(runs_of: Mapping[str, Sequence[Result]]) -> str:
    """Of the results that a picture shows."""
    text = json.dumps({method: [*runs] for method, runs in runs_of.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
