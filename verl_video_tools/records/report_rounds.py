"""Held-out rounds of a run: their metrics over the rows that all of them have measured.

A run may measure fewer rows between its first step and its last (`interim_validation_rows`). Means over different rows
differ also where the policy has stayed the same.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.records.records import read_records

_Members = Sequence[tuple[str, Rollout]]
"""Rollouts of a step, each with what tells its row from others."""
_Rows = Mapping[str | None, frozenset[str]]
"""Rows by method, and all of the policy's by None."""


@dataclass(frozen=True)
class Rounds:
    """The policy is the methods that the run trains, or all that it measures where it trains none.

    Attributes:
        num_rows: that each round has measured of the policy, by step.
        num_shared: how many of them all rounds have; 0 where they share none.
        metrics: of each round, over the rows that all rounds share, or over its own where they share none: those of the
            policy, and by method (`video_tools/<method>/...`), each method over the rows that rounds share of it.
        marks: of curves over fewer rows than some round has measured, or over different ones: what their labels end
            with, by method, that of the policy by None.
        ends: metrics of the policy in the first and the last round that have measured it, over the rows of both.
        num_end_rows: how many these are; 0 where the two share none, and each is over its own.
        last: the last file with a rollout in it.
    """

    num_rows: Mapping[int, int] = field(default_factory=dict)
    num_shared: int = 0
    metrics: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    marks: Mapping[str | None, str] = field(default_factory=dict)
    ends: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    num_end_rows: int = 0
    last: Path | None = None


def read_rounds(files: Sequence[Path], trained: Sequence[str], advance: Callable[[], None] = lambda: None) -> Rounds:
    """Read files of held-out rollouts; a second time where rounds have measured different rows.

    Args:
        trained: methods that the run trains.
        advance: called after each file.

    Raises:
        UsageError: a line cannot be read.
    """
    metrics: dict[int, dict[str, float]] = {}
    rows_of: dict[int, _Rows] = {}
    last = None
    for file in files:
        found = by_step(file)
        for step, members in found.items():
            rows_of[step] = _rows_in(members, trained)
            metrics[step] = _metrics_over(rows_of[step], members, trained)
        last = file if found else last
        advance()
    if not metrics:
        return Rounds()

    shared = {
        name: _shared(rows[name] for rows in rows_of.values() if name in rows)
        for name in {name for rows in rows_of.values() for name in rows}
    }
    marks = {
        name: f" ({told_rows(len(rows))})" if rows else " (different rows)"
        for name, rows in shared.items()
        if any(own.get(name, rows) != rows for own in rows_of.values())
    }
    measured = [step for step, rows in rows_of.items() if None in rows] or list(metrics)
    rows_of_ends = {step: rows_of[step].get(None, frozenset()) for step in (min(measured), max(measured))}
    of_both = _shared(rows_of_ends.values())
    ends = {step: metrics[step] for step in rows_of_ends}
    if marks:
        for step, members in (each for file in files for each in by_step(file).items()):
            rows = {name: shared[name] or own for name, own in rows_of[step].items()}
            metrics[step] = _metrics_over(rows, members, trained)
            if step in ends:
                ends[step] = _metrics_over({None: of_both or rows_of_ends[step]}, members, trained)
    return Rounds(
        num_rows={step: len(rows.get(None, ())) for step, rows in sorted(rows_of.items())},
        num_shared=len(shared.get(None, ())),
        metrics=dict(sorted(metrics.items())),
        marks=marks,
        ends=ends,
        num_end_rows=len(of_both),
        last=last,
    )


def by_step(file: Path) -> dict[int, list[tuple[str, Rollout]]]:
    """Rollouts of a file, each with what tells its row from others.

    Raises:
        UsageError: a line is no rollout of a training run.
    """
    found: dict[int, list[tuple[str, Rollout]]] = defaultdict(list)
    for number, line in enumerate(read_records(file), start=1):
        try:
            found[int(line["step"])].append((_row_of(line), Rollout.from_line(line)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{file}, line {number}: not a rollout of a training run ({error!r:.200})") from error
    return found


def told_rows(count: int) -> str:
    """The number in words for people."""
    return f"{count} row{'s' * (count != 1)}"


def _row_of(line: Mapping[str, Any]) -> str:
    # An index is one of a file of rows, and a run may validate on several.
    row = line.get("extra_info") or {}
    told = [row.get(name) for name in ("index", "question", "video_path", "video_paths", "image_paths")]
    question = line["trajectory"].question if told[:2] == [None, None] else None
    return sys.intern(repr((line["trajectory"].method, line.get("data_source"), question, *told)))


def _rows_in(members: _Members, trained: Sequence[str]) -> _Rows:
    rows: dict[str | None, set[str]] = defaultdict(set)
    for row, rollout in members:
        rows[rollout.trajectory.method].add(row)
        if _is_policys(rollout, trained):
            rows[None].add(row)
    return {name: frozenset(own) for name, own in rows.items()}


def _shared(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset.intersection(*sets)


def _metrics_over(rows: _Rows, members: _Members, trained: Sequence[str]) -> dict[str, float]:
    """No name stands for all methods where the run measures others than it trains: a mean over the policy and the same
    policy without tools tells of neither."""
    on_rows = [rollout for row, rollout in members if row in rows.get(None, ()) and _is_policys(rollout, trained)]
    metrics = rollout_metrics(on_rows)
    for method in sorted(name for name in rows if name is not None):
        own = [rollout for row, rollout in members if row in rows[method] and rollout.trajectory.method == method]
        metrics |= {name: value for name, value in rollout_metrics(own).items() if name.startswith("video_tools/")}
    return metrics


def _is_policys(rollout: Rollout, trained: Sequence[str]) -> bool:
    return not trained or rollout.trajectory.method in trained
