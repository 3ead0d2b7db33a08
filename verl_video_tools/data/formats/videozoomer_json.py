"""Training data of VideoZoomer (arXiv 2512.22315).

Format: a JSON list of `problem` (with `<image>` in the place of the video), `solution`, `videos` (one path),
`data_source` and, optionally, `doc_id` and `extra_info`. Read from verl/utils/dataset/multimodal_dataset.py of
github.com/zsgvivo/VideoZoomer, whose YAML files only list such files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, read_entries, required
from verl_video_tools.data.formats.fields import (
    find_moved_video,
    split_options,
    tagged_answer,
    truth_and_type,
)

_MEDIA_MARKS = ("<image>", "<video>")


class VideoZoomerJSON(Benchmark):
    """See the module."""

    name: ClassVar[str] = "videozoomer-json"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions, with their place in the file as `doc_id` where they have none."""
        for number, entry in enumerate(read_entries(annotations)):
            yield {"doc_id": number, **entry} if isinstance(entry, dict) else entry

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        videos = required(entry, "videos")
        if isinstance(videos, str) or len(videos) != 1:
            raise RowError(f"the field 'videos' must list one video, got {videos!r:.80}")
        problem = str(required(entry, "problem"))
        for mark in _MEDIA_MARKS:
            problem = problem.replace(mark, "")
        question, options = split_options(problem)
        truth, question_type = truth_and_type(tagged_answer(required(entry, "solution")), options)
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=str(entry["doc_id"]),
            split="train",
            video_path=find_moved_video(files.videos, str(videos[0])),
            question=question,
            options=options,
            truth=truth,
            question_type=question_type,
        )
