"""Figures of temporal grounding: questions whose answer is a segment of the video."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from verl_video_tools.core.segments import overlap
from verl_video_tools.data.formats import GradedItem

RECALL_OVERLAPS = (0.3, 0.5, 0.7)


def grounding_metrics(items: Sequence[GradedItem]) -> dict[str, float]:
    """`R@0.3`, `R@0.5`, `R@0.7`: shares of answers with at least so much overlap; `mIoU`: the mean overlap."""
    overlaps = [overlap(item.answer, item.sample.ground_truth) for item in items]
    recalls = {f"R@{least:g}": fmean(value >= least for value in overlaps) for least in RECALL_OVERLAPS}
    return {**recalls, "mIoU": fmean(overlaps)}
