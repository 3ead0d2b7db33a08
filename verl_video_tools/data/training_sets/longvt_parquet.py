"""VideoSIAH: the rows that LongVT (arXiv 2511.20785) is trained on by reinforcement learning.

Format: parquet files of the data set longvideotool/LongVT-Parquet, such as `longvt_rl_selfqa_1k6.parquet`, with
`data_source`, `prompt`, `videos` (one, ``{"video": "file://...", ...}``), `reward_model.ground_truth` and `extra_info`:
`question`, `answer`, `video_segment` [start, end] in seconds, `index`, `split`, `tools_kwargs`. Read from
examples/video_tools/process_time_r1.py of github.com/EvolvingLMMs-Lab/LongVT and converters of the files in other
public repositories.

Rows of the sources `TimeR1`, `TVG-R1...` and `time-r1` ask for a segment, as the published reward routes them.

The prompt, with the published instructions, and the limits of the frames are the method's own here. The files for
fine-tuning hold traces, not rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from verl_video_tools.data.parquet import row_batches
from verl_video_tools.errors import RowError
from verl_video_tools.evaluation.benchmarks import Benchmark, BenchmarkFiles
from verl_video_tools.evaluation.benchmarks.entries import Entry, Row, benchmark_row, required
from verl_video_tools.evaluation.benchmarks.fields import find_moved_video, segment

_COLUMNS = ("data_source", "videos", "reward_model", "extra_info", "messages")


class LongVTParquet(Benchmark):
    """See the module."""

    name: ClassVar[str] = "longvt-parquet"

    def entries(self, annotations: Path) -> Iterable[Entry]:
        """The rows."""
        for batch in row_batches(annotations, _COLUMNS):
            yield from batch.to_pylist()

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        extra_info, videos = required(entry, "extra_info"), required(entry, "videos")
        if len(videos) != 1 or not isinstance(videos[0], Mapping):
            raise RowError(f"the column 'videos' must list one video, got {videos!r:.80}")
        bounds = extra_info.get("video_segment")
        seconds = segment(*bounds) if bounds is not None and len(bounds) == 2 else None
        if bounds is not None and len(bounds) and seconds is None:
            raise RowError(f"the field 'video_segment' must be [start, end] with start < end, got {bounds}")
        source = str(entry.get("data_source") or self.name)
        return benchmark_row(
            source,
            index=str(extra_info.get("index", "")),
            split=str(extra_info.get("split") or "train"),
            video_path=find_moved_video(files.videos, str(required(videos[0], "video"))),
            question=str(required(extra_info, "question")),
            truth=str(required(required(entry, "reward_model"), "ground_truth")),
            question_type="segment" if _asks_for_segment(source) else "open",
            video_segment_seconds=seconds,
        )


def _asks_for_segment(data_source: str) -> bool:
    return data_source in ("TimeR1", "time-r1") or data_source.startswith("TVG-R1")
