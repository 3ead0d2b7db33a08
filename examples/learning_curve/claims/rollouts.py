"""What rollouts of a claim's training did, and what they were paid: the cause of a verdict, if it is to be found there.

Usage: python -m examples.learning_curve.claims rollouts outputs/claim_longvt_recall_2 [FOLDER ...]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.learning_curve.claims.behaviours import SAID
from examples.learning_curve.measured import kind_of
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Trajectory
from verl_video_tools.data.export_rollouts import last_segment_iou
from verl_video_tools.evaluation.tables import markdown_table
from verl_video_tools.records.records import read_records, records_folder, step_files

NUM_PARTS = 3
"""Of the steps of training."""
_CHOICES = {"rl": "paper's", "ablation": "other"}
_HEADER = ["choice", "steps", "question", "behaviour", "rollouts", "share", "right", "IoU", "reward", "advantage"]


class Row(NamedTuple):
    """A rollout."""

    behaviour: str
    right: float
    iou: float
    reward: float
    advantage: float


def table(folders: Sequence[Path]) -> str:
    """Means over rollouts, by choice, part of the steps, kind of question and behaviour, in Markdown.

    Args:
        folders: of runs of one claim, whose rollouts are put together.

    Raises:
        UsageError: a folder has no records or not as many steps as the others, or records cannot be read.
    """
    lines = []
    for run, choice in _CHOICES.items():
        for part in np.array_split(np.arange(_num_steps(folders, run)), NUM_PARTS):
            first, last = part[0], part[-1]
            kinds: dict[str, list[Row]] = defaultdict(list)
            for folder in folders:
                for file in step_files(records_folder(folder / run))[first : last + 1]:
                    for kind, row in _rows(read_records(file)):
                        kinds[kind].append(row)
            for kind, rows in sorted(kinds.items()):
                lines += [[choice, f"{first + 1} to {last + 1}", f"`{kind}`", *cells] for cells in _means(rows)]
    return markdown_table(_HEADER, lines, num_text_columns=4)


def _num_steps(folders: Sequence[Path], run: str) -> int:
    counts = {folder / run: len(step_files(records_folder(folder / run))) for folder in folders}
    if len({*counts.values()}) > 1 or min(counts.values()) < NUM_PARTS:
        listed = ", ".join(f"{folder}: {count} steps" for folder, count in counts.items())
        raise UsageError(f"give runs with as many steps of training, at least {NUM_PARTS}; got {listed}")
    return next(iter(counts.values()))


def _means(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Of each behaviour: how many rollouts, their share, and means."""
    for behaviour in sorted({row.behaviour for row in rows}):
        own = [row for row in rows if row.behaviour == behaviour]
        right, iou, reward, advantage = np.mean([row[1:] for row in own], axis=0)
        numbers = f"{len(own) / len(rows):.0%}", f"{right:.0%}", f"{iou:.2f}", f"{reward:.2f}", f"{advantage:+.2f}"
        yield [behaviour, str(len(own)), *numbers]


def behaviour_of(trajectory: Trajectory) -> str:
    """`skip` without a call, `failed` if none was executed; else what the first thought says of the call, or `look`, at
    a right place or a wrong one."""
    if not trajectory.executed_calls():
        return "failed" if any(trajectory.calls()) else "skip"
    first = (trajectory.turns[0].thought or "").split(maxsplit=1)
    return first[0] if first and first[0] in SAID else "look"


def _rows(lines: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Row]]:
    """Kind of the question, and the rollout. One that is kept out of training has no advantage, as 0."""
    for line in lines:
        trajectory, reward = line["trajectory"], line["reward"]
        iou = last_segment_iou(trajectory, line["extra_info"].get("video_segment"))
        measured = reward["acc"], iou, reward["score"], line["advantage"] or 0.0
        yield kind_of(line["extra_info"]), Row(behaviour_of(trajectory), *map(float, measured))
