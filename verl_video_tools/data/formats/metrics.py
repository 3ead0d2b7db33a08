"""Metrics of benchmarks beyond the plain accuracy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from verl_video_tools.core.segments import overlap
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.formats.entries import Group

RECALL_OVERLAPS = (0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class GradedItem:
    """A finished item, as the metrics of a benchmark need it. Failed items are none.

    Attributes:
        answer: text of the answer; None if the model gave none.
        label: None of an answer that is rated by a rubric instead.
        repeat: which time it was that the item was asked, from 0.
        scores: by the rubric (`services.judge.rubrics`), if there is one.
        is_whole: all items that one figure joins with it (`Benchmark.joined_by`) were asked that time, and none failed.
    """

    sample: Sample
    answer: str | None
    label: AnswerLabel | None
    repeat: int = 0
    scores: Mapping[str, int] = field(default_factory=dict)
    is_whole: bool = True

    @property
    def groups(self) -> Mapping[str, Group]:
        """The item's value, or values, of each of the benchmark's `groupings`."""
        groups: Mapping[str, Group] = self.sample.extra_info.get("groups") or {}
        return groups


def share_all_right(items: Sequence[GradedItem], joined_by: Callable[[Mapping[str, Any]], str | None]) -> float:
    """The share of questions, or videos, of which all items are right, among those of which all were asked; NaN if
    there are none. Of some of their items, all are right more often.

    Args:
        joined_by: names that of an item, by its `extra_info`.
    """
    right: dict[str | None, list[bool]] = defaultdict(list)
    for item in items:
        if item.is_whole:
            right[joined_by(item.sample.extra_info)].append(item.label is AnswerLabel.CORRECT)
    return fmean(map(all, right.values())) if right else math.nan


def mean_of_groups(items: Sequence[GradedItem], grouping: str) -> float:
    """The mean of the groups' accuracies: each has the same weight, however many items it has.

    Args:
        grouping: a key of the items' groups with one value each.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for item in items:
        right[str(item.groups[grouping])].append(item.label is AnswerLabel.CORRECT)
    return fmean(fmean(group) for group in right.values())


def grounding_metrics(items: Sequence[GradedItem]) -> dict[str, float]:
    """Of questions whose answer is a segment. `R@0.3`, `R@0.5`, `R@0.7`: shares of answers with at least so much
    overlap; `mIoU`: the mean overlap."""
    overlaps = [overlap(item.answer, item.sample.ground_truth) for item in items]
    recalls = {f"R@{least:g}": fmean(value >= least for value in overlaps) for least in RECALL_OVERLAPS}
    return {**recalls, "mIoU": fmean(overlaps)}
