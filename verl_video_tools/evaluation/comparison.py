"""Runs beside each other, item by item: paired differences of their accuracies, and what difference could be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import writing
from verl_video_tools.evaluation.items import Line, correctness
from verl_video_tools.evaluation.table_text import Table
from verl_video_tools.evaluation.tables import ADVICE, TOO_FEW, bracketed, percent
from verl_video_tools.evaluation.uncertainty.differences import (
    Difference,
    least_shown_difference,
    paired_difference,
)
from verl_video_tools.evaluation.uncertainty.estimates import Estimate, mean_by_video
from verl_video_tools.evaluation.uncertainty.intervals import is_enough

FIGURES = {"accuracy": "label", "accuracy_published": "label_published"}
"""Accuracies, as results name them, and the verdicts of `items.jsonl` that they are shares of."""

PAIRED = "paired.json"
"""What `write_comparisons` writes."""

Runs = Mapping[str, Sequence[Line]]
"""Lines of `items.jsonl`, by the name of the result."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The accuracy of one run minus that of another on the items that both have answered.

    Attributes:
        figure: one of `FIGURES`: whose verdicts the accuracies are.
        num_only: items that one of the two alone has answered: the run, and the other one.
        num_better, num_worse: items of which the run has a greater, or a smaller, share of the answers right.
        difference: None where they share no two videos.
    """

    figure: str
    run: str
    minus: str
    num_items: int
    num_only: tuple[int, int]
    num_better: int
    num_worse: int
    difference: Difference | None


def compare(runs: Runs) -> list[Comparison]:
    """Each run with each earlier one, by our verdicts, and by published ones where both runs have them."""
    found = []
    for figure, label in FIGURES.items():
        answered = {name: answers for name, lines in runs.items() if (answers := correctness(lines, label))}
        found += [
            _compared(figure, run, answered[run], minus, answered[minus]) for minus, run in combinations(answered, 2)
        ]
    return found


def _compared(
    figure: str, run: str, ours: Mapping[str, tuple[float, str]], minus: str, theirs: Mapping[str, tuple[float, str]]
) -> Comparison:
    shared = [item for item in ours if item in theirs]
    differences = [ours[item][0] - theirs[item][0] for item in shared]
    videos = [ours[item][1] for item in shared]
    return Comparison(
        figure,
        run,
        minus,
        num_items=len(shared),
        num_only=(len(ours) - len(shared), len(theirs) - len(shared)),
        num_better=sum(difference > 0 for difference in differences),
        num_worse=sum(difference < 0 for difference in differences),
        difference=paired_difference(differences, videos) if len(set(videos)) > 1 else None,
    )


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """A row for each pair; differences are in points of percent."""
    head = ["result", "minus", "figure", "shared items", "only in it", "only in the other", "videos", "better", "worse"]
    rows = []
    for each in comparisons:
        counts = (each.num_items, *each.num_only, 0 if each.difference is None else each.difference.estimate.num_videos)
        rows.append(
            [
                each.run,
                each.minus,
                each.figure.replace("_", ", "),
                *map(str, (*counts, each.num_better, each.num_worse)),
                *_difference_cells(each.difference),
            ]
        )
    note = "Paired by item. p: of a test by permutation of whole videos, not corrected for the number of rows."
    return Table([*head, "difference", "p"], rows, 3, note)


def write_comparisons(comparisons: Sequence[Comparison], folder: Path) -> None:
    """Write `paired.json`. Raises UsageError if it cannot be written."""
    lines = [
        {
            "result": each.run,
            "minus": each.minus,
            "figure": each.figure,
            "shared_items": each.num_items,
            "only_in_result": each.num_only[0],
            "only_in_minus": each.num_only[1],
            "better": each.num_better,
            "worse": each.num_worse,
            **_figures(each.difference),
        }
        for each in comparisons
    ]
    with writing(folder, ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PAIRED).write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def power_table(runs: Runs, comparisons: Sequence[Comparison]) -> Table:
    """Which true difference a test at 5 % finds in 80 % of evaluations like these, by the runs' own scatter."""
    rows = []
    for name, lines in runs.items():
        answered = list(correctness(lines).values())
        videos = [video for _, video in answered]
        if len(set(videos)) < 2:
            continue
        estimate = mean_by_video([share for share, _ in answered], videos)
        least = least_shown_difference(estimate)
        counts = (str(len(answered)), str(estimate.num_videos))
        rows.append([f"{name}, to a published figure", *counts, _points(least, estimate)])
        unpaired = None if least is None else 2**0.5 * least
        rows.append([f"{name}, to a run on other videos", *counts, _points(unpaired, estimate)])
    for each in comparisons:
        if each.figure == "accuracy" and each.difference is not None:
            estimate = each.difference.estimate
            counts = (str(each.num_items), str(estimate.num_videos))
            rows.append(
                [f"{each.run} to {each.minus}, paired", *counts, _points(least_shown_difference(estimate), estimate)]
            )
    note = (
        "Points of percent, found in 80 % of evaluations at the level 5 %. Four times the videos show half of it. "
        "-: all items say the same, which tells no scatter."
    )
    return Table(["difference", "items", "videos", "least shown"], rows, 1, note)


def _difference_cells(difference: Difference | None) -> list[str]:
    if difference is None:
        return ["-", "-"]
    value = percent(difference.estimate.value)
    if difference.interval is not None or not is_enough(difference.estimate):
        value = f"{value} {bracketed(difference.interval)}"
    return [value, _p_cell(difference.p_value)]


def _p_cell(p_value: float | None) -> str:
    if p_value is None:
        return "-"
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _figures(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {"videos": 0, "difference": None, "interval": None, "p_value": None}
    return {
        "videos": difference.estimate.num_videos,
        "difference": difference.estimate.value,
        "interval": difference.interval,
        "p_value": difference.p_value,
    }


def _points(difference: float | None, estimate: Estimate) -> str:
    if difference is None:
        return "-" if is_enough(estimate) else TOO_FEW
    return percent(difference)
