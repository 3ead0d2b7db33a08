"""The table that ends a recipe: first against last step, from the recorded trajectories.

Usage: python -m verl_video_tools.records.summary FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verl_video_tools.records.report_curves import HEADLINES, read_training


def main(folder: Path) -> None:
    steps = read_training(folder)
    console = Console()
    if not steps:
        console.print(f"no recorded step in {folder}")
        return
    first, last = min(steps), max(steps)
    table = Table(title=f"{len(steps)} steps", title_justify="left")
    table.add_column("mean over the step's rollouts")
    table.add_column(f"step {first}", justify="right")
    table.add_column(f"step {last}", justify="right")
    for label, metric in HEADLINES.items():
        table.add_row(label, f"{steps[first][metric]:.3f}", f"{steps[last][metric]:.3f}")
    console.print(table)
    console.print(f"trajectories: {folder.resolve()}/step_*.jsonl", soft_wrap=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
