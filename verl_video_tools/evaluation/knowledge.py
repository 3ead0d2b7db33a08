"""Video-MMMU's knowledge gain: how much of what a model does not know it learns from the lecture.

It takes two runs, one of `video-mmmu` and one of `video-mmmu-question-only`, which asks the questions of the track
Adaptation without the lecture (arXiv 2501.13826).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.evaluation.table_text import Table
from verl_video_tools.evaluation.tables import Results, method_label, percent

_WITH, _WITHOUT, _TRACK = "video-mmmu", "video-mmmu-question-only", "Adaptation"


def knowledge_gain(before: float, after: float) -> float | None:
    """The gain in accuracy as a share of what could be gained; None where nothing could.

    Args:
        before, after: accuracies without and with the lecture, from 0 to 1.
    """
    return None if before == 1 else (after - before) / (1 - before)


def knowledge_table(results: Results) -> Table:
    """A row for each two results of the same model and method, with and without the lecture; by our verdicts, then by
    the published ones."""
    rows = []
    for name, result in results.items():
        for other, without in results.items():
            if not _belong_together(result, without):
                continue
            with_lecture = result["groups"]["track"].get(_TRACK, {})
            for figure in ("accuracy", "accuracy_published"):
                before, after = without["overall"].get(figure), with_lecture.get(figure)
                if before is not None and after is not None:
                    gain = knowledge_gain(before, after)
                    rows.append([name, other, figure.replace("_", ", "), *map(percent, (before, after, gain))])
    return Table(["with lecture", "without", "figure", "before", "after", "knowledge gain"], rows, 3)


def _belong_together(result: Mapping[str, Any], without: Mapping[str, Any]) -> bool:
    protocols = result["protocol"], without["protocol"]
    benchmarks = tuple(protocol.get("benchmark") for protocol in protocols)
    # Labels keep the baselines of `direct` and the controls apart.
    asked, other = ((each["model"], method_label(each)) for each in protocols)
    return benchmarks == (_WITH, _WITHOUT) and asked == other and "track" in result["groups"]
