"""A benchmark's metrics of items that may have been asked several times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from verl_video_tools.data.formats import Benchmark, GradedItem


def mean_metrics(benchmark: Benchmark | None, items: Sequence[GradedItem]) -> dict[str, float]:
    """The metrics of each time that the items were asked, and of these the mean; none without items or a benchmark.

    Times are kept apart, as a metric may join items.
    """
    times: dict[int, list[GradedItem]] = {}
    for item in items:
        times.setdefault(item.repeat, []).append(item)
    if benchmark is None or not times:
        return {}
    found = [benchmark.metrics(each) for each in times.values()]
    means = {name: fmean(metrics[name] for metrics in found) for name in found[0]}
    return {name: mean for name, mean in means.items() if not math.isnan(mean)}
