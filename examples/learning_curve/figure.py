"""The results of `run.py` as one picture: held-out accuracy of every policy, method by method.

Usage: python examples/learning_curve/figure.py docs/images/learning.png outputs/learn_*/results.json

A bar is the mean over a method's seeds; its line is the 95 % interval of one seed, or the range of several.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from verl_video_tools.trace.report_figures import COLOURS

BARS = {"after SFT": COLOURS[5], "after RL": COLOURS[0], "after RFT": COLOURS[2], "after RL, without tools": "#8a8f98"}
CHANCE = 0.25
_QUESTIONS = "needs another look"


def draw(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Raises KeyError for a result that `run.py` did not write."""
    by_method: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for result in results:
        by_method[result["method"]].append(result["accuracy"])
    bars = [name for name in BARS if any(name in accuracy for runs in by_method.values() for accuracy in runs)]
    figure = Figure(figsize=(3.0 + 2.0 * len(by_method), 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(bars)
    for place, runs in enumerate(by_method.values()):
        own = [name for name in bars if any(name in accuracy for accuracy in runs)]
        for number, name in enumerate(own):
            estimates = [accuracy[name][_QUESTIONS] for accuracy in runs if name in accuracy]
            means = [estimate["mean"] for estimate in estimates]
            mean = sum(means) / len(means)
            one = len(estimates) == 1
            low, high = (estimates[0]["low"], estimates[0]["high"]) if one else (min(means), max(means))
            x = place + (number - (len(own) - 1) / 2) * width
            axes.bar(x, mean, 0.9 * width, color=BARS[name])
            axes.errorbar(x, mean, [[mean - low], [high - mean]], color="#1c2430", capsize=3, linewidth=1)
            axes.annotate(f"{mean:.0%}", (x, high), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    axes.axhline(CHANCE, color="#5b6675", linestyle=":", linewidth=1)
    seeds = {method: len(runs) for method, runs in by_method.items()}
    axes.set_xticks(
        range(len(by_method)), [f"{method}\n{count} seed{'s' * (count > 1)}" for method, count in seeds.items()]
    )
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title("Held-out accuracy where a second look is needed\n(dotted: chance)", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    keys = [Patch(color=BARS[name], label=name) for name in bars]
    axes.legend(handles=keys, frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("results", type=Path, nargs="+")
    arguments = parser.parse_args()
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    draw([json.loads(path.read_text()) for path in arguments.results]).savefig(arguments.picture)


if __name__ == "__main__":
    main()
