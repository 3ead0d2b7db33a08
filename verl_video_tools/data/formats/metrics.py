"""Metrics of benchmarks beyond the plain accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from verl_video_tools.core.segments import overlap
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.formats.entries import Group

RECALL_OVERLAPS = (0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class GradedItem:
    """A finished item, as the metrics of a benchmark need it. Failed items are none.

    Attributes:
        answer: text of the answer; None if the model gave none.
        repeat: which time it was that the item was asked, from 0.
    """

    sample: Sample
    answer: str | None
    label: AnswerLabel
    repeat: int = 0

    @property
    def groups(self) -> Mapping[str, Group]:
        """The item's value, or values, of each of the benchmark's `groupings`."""
        groups: Mapping[str, Group] = self.sample.extra_info.get("groups") or {}
        return groups


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
