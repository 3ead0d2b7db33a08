"""LSDBench (arXiv 2503.12496): 1300 multiple-choice questions about short actions in long first-person videos (Ego4D).

Format: `mc_qa_annotations_1300.json`, a list of `question`, `options` (by letter), `correct_answer` (letter),
`time_range` (`start` and `end`, "HH:MM:SS"), `video_id`, ...; videos `<video_id>.mp4`. A question is known by its place
in the list. Read from lsdbench/ and evaluation/dataset.py of github.com/dvlab-research/LSDBench.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    Entry,
    ReadEntry,
    Row,
    benchmark_row,
    find_video,
    read_entries,
    required,
)
from verl_video_tools.data.formats.fields import lettered_options, segment


class LSDBench(Benchmark):
    """See the module."""

    name: ClassVar[str] = "lsdbench"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions with their place in the list as `id`."""
        for number, entry in enumerate(read_entries(annotations)):
            yield {"id": number, **entry} if isinstance(entry, dict) else entry

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        time_range = entry.get("time_range") or {}
        return benchmark_row(
            self.name,
            index=str(required(entry, "id")),
            split="test",
            video_path=find_video(files.videos, str(required(entry, "video_id"))),
            question=str(required(entry, "question")),
            options=lettered_options(required(entry, "options"), "options"),
            truth=str(required(entry, "correct_answer")),
            video_segment_seconds=segment(time_range.get("start"), time_range.get("end")),
        )
