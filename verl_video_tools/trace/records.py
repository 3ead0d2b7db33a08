"""Trajectories of a run as JSON lines: one file per step, one line per rollout.

`replay`, viewer, exports and the parity test read them. A line holds the trajectory, the reward breakdown, the row it
came from, its advantage, and, when asked for, the tokens with mask and both log-probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.types import Trajectory


class RecordWriter:
    """Writes `<folder>/step_<n>.jsonl`; a file appears only when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, lines: Iterable[Mapping[str, Any]]) -> Path:
        path = self.folder / f"step_{step:06d}.jsonl"
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        partial.replace(path)
        return path


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of a run in the order of its steps; `line["trajectory"]` is a `Trajectory`."""
    for path in sorted(folder.glob("step_*.jsonl")):
        with path.open(encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                line["trajectory"] = Trajectory.from_dict(line["trajectory"])
                yield line
