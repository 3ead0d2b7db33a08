"""The table that ends a recipe: first against last step, from the recorded trajectories, or from verl's log of a
fine-tuning run, which records none.

Usage: python -m verl_video_tools.records.summary FOLDER

FOLDER is a run's, or that of its trajectories.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verl_video_tools.records.records import records_folder
from verl_video_tools.records.report import HEADLINES, LOG_NAMES, Steps, merged, read_log, read_training

FINE_TUNING = {"loss": "train/loss", "validation loss": "val/loss", "learning rate": "train/lr"}


def main(folder: Path) -> None:
    console = Console()
    records = records_folder(folder)
    if steps := read_training(records):
        console.print(_table(steps, HEADLINES, "mean over the step's rollouts"))
        console.print(f"trajectories: {records.resolve()}/step_*.jsonl", soft_wrap=True)
    elif steps := _fine_tuning(folder):
        console.print(_table(steps, FINE_TUNING, "fine-tuning"))
    else:
        console.print(f"no recorded step in {folder}")


def _fine_tuning(folder: Path) -> Steps:
    """Of all starts, the latest of a step that was repeated."""
    trained = "train/loss"
    steps = merged(map(read_log, sorted(folder.glob(LOG_NAMES))), trained)
    return {step: values for step, values in steps.items() if trained in values}


def _table(steps: Steps, metrics: Mapping[str, str], heading: str) -> Table:
    first, last = min(steps), max(steps)
    table = Table(title=f"{len(steps)} steps", title_justify="left")
    table.add_column(heading)
    table.add_column(f"step {first}", justify="right")
    table.add_column(f"step {last}", justify="right")
    for label, metric in metrics.items():
        values = [steps[step].get(metric) for step in (first, last)]
        if any(value is not None for value in values):
            table.add_row(label, *("" if value is None else _number(value) for value in values))
    return table


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
