"""Means that benchmarks rank by, where it is not the plain accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.data.formats import GradedItem


def mean_of_groups(items: Sequence[GradedItem], grouping: str) -> float:
    """The mean of the groups' accuracies: each counts alike, however many items it has.

    Args:
        grouping: a key of the items' groups with one value each.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for item in items:
        right[str(item.groups[grouping])].append(item.label is AnswerLabel.CORRECT)
    return fmean(fmean(group) for group in right.values())
