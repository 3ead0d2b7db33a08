"""Intervals of the figures in `results.json`, as `[low, high]`; None where there are too few videos."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from verl_video_tools.core.clips import read_clip
from verl_video_tools.data.formats import Benchmark, GradedItem
from verl_video_tools.evaluation.metrics import mean_metrics
from verl_video_tools.evaluation.uncertainty.estimates import figures_by_video, mean_by_video
from verl_video_tools.evaluation.uncertainty.intervals import MIN_VIDEOS, Interval, plain_interval, share_interval

_DIGITS = 6
"""Intervals are rounded, so that machines which add up in another order give the same."""


def share_intervals(values: Mapping[str, Sequence[float]], videos: Sequence[str]) -> dict[str, list[float] | None]:
    """Of the means of values between 0 and 1, by name of the figure; `videos` names the video of each value."""
    if len(set(videos)) < MIN_VIDEOS:
        return dict.fromkeys(values)
    return {name: _rounded(share_interval(mean_by_video(each, videos))) for name, each in values.items()}


def metric_intervals(items: Sequence[GradedItem], benchmark: Benchmark | None) -> dict[str, list[float] | None]:
    """Of the benchmark's own metrics."""
    if benchmark is None or not items:
        return {}
    videos = [read_clip(item.sample.media or item.sample.question).file for item in items]
    if len(set(videos)) < MIN_VIDEOS:
        return dict.fromkeys(mean_metrics(benchmark, items))
    found = figures_by_video(items, videos, partial(mean_metrics, benchmark))
    return {
        name: _rounded(share_interval(estimate) if 0 <= estimate.value <= 1 else plain_interval(estimate))
        for name, estimate in found.items()
    }


def _rounded(interval: Interval | None) -> list[float] | None:
    if interval is None or any(map(math.isnan, interval)):
        return None
    return [round(bound, _DIGITS) for bound in interval]
