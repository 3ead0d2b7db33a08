"""VideoSIAH-Eval (LongVT, arXiv 2511.20785): open questions about short segments of long videos.

Format: the parquet file of the data set longvideotool/VideoSIAH-Eval, records of `video_path`, `question`, `answer`.
No segments are published. The questions need a judge.
Read from lmms_eval/tasks/longvt of github.com/EvolvingLMMs-Lab/lmms-eval.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, read_entries, required
from verl_video_tools.data.formats.fields import find_moved_video


class VideoSIAHEval(Benchmark):
    """See the module."""

    name: ClassVar[str] = "videosiah-eval"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions with their place in the file as `id`."""
        for number, entry in enumerate(read_entries(annotations)):
            yield {"id": number, **entry} if isinstance(entry, dict) else entry

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        return benchmark_row(
            self.name,
            index=str(required(entry, "id")),
            split="test",
            video_path=find_moved_video(files.videos, str(required(entry, "video_path"))),
            question=str(required(entry, "question")),
            truth=str(required(entry, "answer")),
            question_type="open",
        )
