"""What a file of rows holds, in numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import Sample, VideoInfo
from verl_video_tools.data.parquet import row_batches
from verl_video_tools.data.picture_rows import is_picture_row

_COLUMNS = ("data_source", "agent_name", "reward_model", "extra_info")
_LENGTH_BOUNDS_MINUTES = (1, 3, 10, 30, 60)


@dataclass
class RowStats:
    """Counts of rows by what they are, and of videos.

    Attributes:
        unreadable: invalid rows; they are counted nowhere else.
        about_pictures: rows for fine-tuning that are about images instead of a video; counted nowhere else, either.
        sources, methods, question_types, classifications: rows by value; rows without a method or a class are under
            "none".
        num_options: multiple-choice rows by their number of options; 0 where only the question lists them.
        truth_letters: multiple-choice rows by letter of the truth.
        questions_of_video: rows of each video, by path.
        segment_seconds: lengths of the annotated segments.
        durations_seconds: of videos that could be read, if they were.
    """

    num_rows: int = 0
    unreadable: int = 0
    about_pictures: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)
    question_types: Counter[str] = field(default_factory=Counter)
    classifications: Counter[str] = field(default_factory=Counter)
    num_options: Counter[int] = field(default_factory=Counter)
    truth_letters: Counter[str] = field(default_factory=Counter)
    questions_of_video: Counter[str] = field(default_factory=Counter)
    segment_seconds: list[float] = field(default_factory=list)
    durations_seconds: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; videos and lengths are summed up by least, median and largest value."""
        return {
            "rows": self.num_rows,
            "unreadable": self.unreadable,
            "about pictures": self.about_pictures,
            "data_source": dict(self.sources.most_common()),
            "agent_name": dict(self.methods.most_common()),
            "question_type": dict(self.question_types.most_common()),
            "classification": dict(self.classifications.most_common()),
            "number of options": {str(number): count for number, count in sorted(self.num_options.items())},
            "letter of the truth": dict(sorted(self.truth_letters.items())),
            "videos": len(self.questions_of_video),
            "questions per video": spread(list(self.questions_of_video.values())),
            "segment seconds": spread(self.segment_seconds),
            "video seconds": spread(self.durations_seconds),
            "video length": length_bands(self.durations_seconds),
        }


def row_stats(source: Path, videos: Mapping[str, VideoInfo | str] | None = None) -> RowStats:
    """Count the rows of a file.

    Args:
        videos: facts about the rows' files by path (`validate.probe_videos`), for the lengths of videos.

    Raises:
        UsageError: the file cannot be read.
    """
    stats = RowStats()
    for batch in row_batches(source, _COLUMNS):
        for row in batch.to_pylist():
            _count(stats, row)
    found = [(videos or {}).get(path) for path in stats.questions_of_video]
    stats.durations_seconds = [info.duration_seconds for info in found if isinstance(info, VideoInfo)]
    return stats


def _count(stats: RowStats, row: Mapping[str, Any]) -> None:
    stats.num_rows += 1
    if is_picture_row(row):
        stats.about_pictures += 1
        return
    try:
        sample = Sample.from_row(row)
    except (RowError, TypeError, ValueError, IndexError, AttributeError):
        stats.unreadable += 1
        return
    stats.sources[str(row.get("data_source"))] += 1
    stats.methods[str(row.get("agent_name") or "none")] += 1
    stats.question_types[sample.question_type] += 1
    stats.classifications[str(sample.extra_info.get("classification") or "none")] += 1
    if sample.question_type == "mc":
        stats.num_options[len(sample.options)] += 1
        stats.truth_letters[sample.ground_truth.strip().upper()] += 1
    stats.questions_of_video.update({read_clip(path).file for path in sample.videos})
    if sample.video_segment_seconds is not None:
        start, end = sample.video_segment_seconds
        stats.segment_seconds.append(end - start)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and largest value; empty where there are none."""
    if not values:
        return {}
    return {"least": min(values), "median": statistics.median(values), "largest": max(values)}


def length_bands(durations_seconds: Sequence[float]) -> dict[str, int]:
    """Videos by length; a video as long as a bound is in the lower band."""
    names = [f"up to {bound} min" for bound in _LENGTH_BOUNDS_MINUTES] + [f"above {_LENGTH_BOUNDS_MINUTES[-1]} min"]
    bands = dict.fromkeys(names, 0)
    for duration in durations_seconds:
        bands[names[sum(duration > 60 * bound for bound in _LENGTH_BOUNDS_MINUTES)]] += 1
    return {name: count for name, count in bands.items() if count}
