"""The table that ends a recipe: first against last step, from the recorded trajectories.

Usage: python -m verl_video_tools.trace.summary FOLDER
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from verl_video_tools.trace.records import read_records

_ROWS = ("reward", "accuracy", "executed calls per rollout", "frames per rollout", "groups with unequal rewards")


def step_summaries(folder: Path) -> dict[int, dict[str, float]]:
    """Means per step, keyed by step, over all rollouts of the step."""
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in read_records(folder):
        by_step[line["step"]].append(line)
    return {step: _summarise(lines) for step, lines in sorted(by_step.items())}


def _summarise(lines: list[dict[str, Any]]) -> dict[str, float]:
    counts = [line["trajectory"].counts() for line in lines]
    scores: dict[str, set[float]] = defaultdict(set)
    for line in lines:
        if not line["trajectory"].flags:
            scores[line["uid"]].add(line["reward"]["score"])
    values = (
        np.mean([line["reward"]["score"] for line in lines]),
        np.mean([line["reward"]["acc"] for line in lines]),
        np.mean([count["executed_calls"] for count in counts]),
        np.mean([count["initial_frames"] + count["tool_frames"] for count in counts]),
        np.mean([len(group) > 1 for group in scores.values()]) if scores else 0.0,
    )
    return {name: float(value) for name, value in zip(_ROWS, values, strict=True)}


def main(folder: Path) -> None:
    summaries = step_summaries(folder)
    console = Console()
    if not summaries:
        console.print(f"no recorded step in {folder}")
        return
    first, last = min(summaries), max(summaries)
    table = Table(title=f"{len(summaries)} steps", title_justify="left")
    table.add_column("mean over the step's rollouts")
    table.add_column(f"step {first}", justify="right")
    table.add_column(f"step {last}", justify="right")
    for name in _ROWS:
        table.add_row(name, f"{summaries[first][name]:.3f}", f"{summaries[last][name]:.3f}")
    console.print(table)
    console.print(f"trajectories: {folder.resolve()}/step_*.jsonl", soft_wrap=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
