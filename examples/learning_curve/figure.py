"""The results of `run.py` as one picture and as tables in Markdown: held-out accuracy of every policy.

Usage: python examples/learning_curve/figure.py docs/images/learning.png outputs/learn_*/results.json

A bar is the mean over a method's seeds; its line is the 95 % interval of one seed, or the range of several. The tables
have a row per seed.
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

from verl_video_tools.evaluation.table_text import markdown_table
from verl_video_tools.records.report_figures import COLOURS

BARS = {"after SFT": COLOURS[5], "after RL": COLOURS[0], "after RFT": COLOURS[2], "after RL, without tools": "#8a8f98"}
CHANCE = 0.25
_QUESTIONS = "needs another look"
_GAINS = ("after RL less after SFT", "after RL less after RL, without tools")


def tables(results: Sequence[Mapping[str, Any]]) -> str:
    """Accuracies and gains of each run, then accuracies by kind of question; in percent and points.

    Raises:
        KeyError: a result that `run.py` did not write.
    """
    policies = _policies(results)
    kinds = sorted({kind for result in results for kind in result["accuracy"]["after RL"]["by kind"]})
    runs, by_kind = [], []
    for result in results:
        accuracy, own = result["accuracy"], [result["method"], str(result["seed"])]
        measured = [_percent(accuracy[name][_QUESTIONS]) if name in accuracy else "" for name in policies]
        gains = [_percent(result[name], "+.1f") if name in result else "" for name in _GAINS]
        runs.append([*own, *measured, *gains])
        for name in (name for name in policies if name in accuracy):
            shares = accuracy[name]["by kind"]
            by_kind.append([*own, name, *(f"{100 * shares[kind]:.1f}" if kind in shares else "" for kind in kinds)])
    first = markdown_table(["method", "seed", *policies, *_GAINS], runs, num_text_columns=2)
    return f"{first}\n\n{markdown_table(['method', 'seed', 'policy', *kinds], by_kind, num_text_columns=3)}"


def _policies(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that any run has measured, in the order of the bars."""
    return [name for name in BARS if any(name in result["accuracy"] for result in results)]


def _percent(estimate: Mapping[str, float], form: str = ".1f") -> str:
    mean, low, high = (100 * estimate[name] for name in ("mean", "low", "high"))
    return f"{mean:{form}} ({low:.1f} to {high:.1f})"


def draw(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Raises KeyError for a result that `run.py` did not write."""
    by_method: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for result in results:
        by_method[result["method"]].append(result["accuracy"])
    bars = _policies(results)
    figure = Figure(figsize=(2.0 + 1.5 * len(by_method), 4.2), dpi=150, layout="constrained")
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
    axes.legend(handles=keys, frameon=False, ncols=len(keys), loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("results", type=Path, nargs="+")
    arguments = parser.parse_args()
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    results = [json.loads(path.read_text()) for path in arguments.results]
    draw(results).savefig(arguments.picture)
    print(tables(results))


if __name__ == "__main__":
    main()
