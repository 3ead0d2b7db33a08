"""Runs beside each other, item by item: paired differences of their accuracies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from verl_video_tools.core.errors import writing
from verl_video_tools.evaluation.items import Line, correctness
from verl_video_tools.evaluation.statistics import Interval, paired_difference
from verl_video_tools.evaluation.tables import ADVICE, Table, bracketed, percent

FIGURES = {"accuracy": "label", "accuracy_published": "label_published"}
"""Accuracies, as results name them, and the verdicts of `items.jsonl` that they are shares of."""

PAIRED = "paired.json"
"""What `write_comparisons` writes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The accuracy of one run minus that of another on the items that both have answered: an entry of `paired.json`.

    Attributes:
        figure: one of `FIGURES`: whose verdicts the accuracies are.
        better, worse: items of which the run has a greater, or a smaller, share of the answers right.
        difference: None where they share no two videos.
        interval: 95 %; None with too few videos, or without any scatter.
        p_value: None with too few videos.
    """

    result: str
    minus: str
    figure: str
    shared_items: int
    only_in_result: int
    only_in_minus: int
    better: int
    worse: int
    videos: int
    difference: float | None
    interval: Interval | None
    p_value: float | None


def compare(runs: Mapping[str, Sequence[Line]]) -> list[Comparison]:
    """Each run with each earlier one, by our verdicts, and by published ones where both runs have them.

    Args:
        runs: lines of `items.jsonl`, by the name of the result.
    """
    comparisons = []
    for figure, label in FIGURES.items():
        answered = {name: answers for name, lines in runs.items() if (answers := correctness(lines, label))}
        comparisons += [
            _compared(figure, run, answered[run], minus, answered[minus]) for minus, run in combinations(answered, 2)
        ]
    return comparisons


def _compared(
    figure: str, run: str, ours: Mapping[str, tuple[float, str]], minus: str, theirs: Mapping[str, tuple[float, str]]
) -> Comparison:
    shared = [item for item in ours if item in theirs]
    differences = [ours[item][0] - theirs[item][0] for item in shared]
    videos = [ours[item][1] for item in shared]
    paired = paired_difference(differences, videos) if len(set(videos)) > 1 else None
    return Comparison(
        run,
        minus,
        figure,
        shared_items=len(shared),
        only_in_result=len(ours) - len(shared),
        only_in_minus=len(theirs) - len(shared),
        better=sum(difference > 0 for difference in differences),
        worse=sum(difference < 0 for difference in differences),
        videos=len(set(videos)),
        difference=None if paired is None else paired.estimate.value,
        interval=None if paired is None else paired.interval,
        p_value=None if paired is None else paired.p_value,
    )


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """A row for each pair; differences are in points of percent."""
    head = ["result", "minus", "figure", "shared items", "only in it", "only in the other", "videos", "better", "worse"]
    rows = []
    for each in comparisons:
        counts = (each.shared_items, each.only_in_result, each.only_in_minus, each.videos, each.better, each.worse)
        texts = [each.result, each.minus, each.figure.replace("_", ", "), *map(str, counts)]
        rows.append([*texts, _difference_cell(each), _p_cell(each.p_value)])
    note = "Paired by item. p: of a test by permutation of whole videos, not corrected for the number of rows."
    return Table([*head, "difference", "p"], rows, 3, note)


def write_comparisons(comparisons: Sequence[Comparison], folder: Path) -> None:
    """Write `paired.json`. Raises UsageError if it cannot be written."""
    lines = [asdict(each) for each in comparisons]
    with writing(folder, ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PAIRED).write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _difference_cell(comparison: Comparison) -> str:
    value = percent(comparison.difference)
    # Without scatter there is a p-value and no interval.
    if comparison.difference is None or (comparison.interval is None and comparison.p_value is not None):
        return value
    return f"{value} {bracketed(comparison.interval)}"


def _p_cell(p_value: float | None) -> str:
    if p_value is None:
        return "-"
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
