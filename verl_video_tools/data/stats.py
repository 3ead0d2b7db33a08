"""What a file of rows holds, in numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.sample import read_clip
from verl_video_tools.core.types import Sample, VideoInfo
from verl_video_tools.data.parquet import row_batches

_COLUMNS = ("data_source", "agent_name", "reward_model", "extra_info")


def row_stats(source: Path, videos: Mapping[str, VideoInfo | str] | None = None) -> dict[str, Any]:
    """Counts of the rows of a file by what they are, and of videos, as JSON-able values.

    Invalid rows are under "unreadable" alone. Rows without a method or a class are under "none". "number of options" is
    0 where only the question lists them.

    Args:
        videos: facts about the rows' files by path (`validate.probe_videos`), for the lengths of videos.

    Raises:
        UsageError: the file cannot be read.
    """
    counts: dict[str, Counter[str]] = {
        name: Counter()
        for name in (
            *("data_source", "agent_name", "question_type", "classification"),
            *("number of options", "letter of the truth"),
        )
    }
    questions_of_video = Counter[str]()
    segment_seconds: list[float] = []
    num_rows = num_unreadable = 0
    for row in (row for batch in row_batches(source, _COLUMNS) for row in batch.to_pylist()):
        num_rows += 1
        try:
            sample = Sample.from_row(row)
        except (RowError, TypeError, ValueError, IndexError, AttributeError):
            num_unreadable += 1
            continue
        counts["data_source"][str(row.get("data_source"))] += 1
        counts["agent_name"][str(row.get("agent_name") or "none")] += 1
        counts["question_type"][sample.question_type] += 1
        counts["classification"][str(sample.extra_info.get("classification") or "none")] += 1
        if sample.question_type == "mc":
            counts["number of options"][str(len(sample.options))] += 1
            counts["letter of the truth"][sample.ground_truth.strip().upper()] += 1
        questions_of_video.update({read_clip(path).file for path in sample.videos})
        if sample.video_segment_seconds is not None:
            start, end = sample.video_segment_seconds
            segment_seconds.append(end - start)
    infos = [(videos or {}).get(path) for path in questions_of_video]
    return {
        "rows": num_rows,
        "unreadable": num_unreadable,
        **{name: dict(sorted(values.items())) for name, values in counts.items()},
        "videos": len(questions_of_video),
        "questions per video": _spread(list(questions_of_video.values())),
        "segment seconds": _spread(segment_seconds),
        "video seconds": _spread([info.duration_seconds for info in infos if isinstance(info, VideoInfo)]),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and largest value; empty where there are none."""
    if not values:
        return {}
    return {"least": min(values), "median": statistics.median(values), "largest": max(values)}
