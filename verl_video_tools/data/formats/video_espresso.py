"""VideoEspresso (arXiv 2411.14794): 203,000 questions with evidence from core frames, to train on, and a benchmark.

Format: `videoespresso_train_video.json`, a list of `video_path`, `question`, `answer` (a text), `task` and what the
answer was derived from (core frames, `evidence`); the benchmark (`bench_hard.json`) has `options`, "(A): text", and
`correct_answer`, "(A)", instead of `answer`. The benchmark was read from eval/README.md and eval/eval.py of
github.com/hshjerry/VideoEspresso; the training file second-hand, from scripts/prepare_videoespresso_mc_train.py of
github.com/Chenwei-1999/SparseVideoUnderstanding. The version of core frames without videos (`videoespresso_train.json`)
gives no rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, read_entries, required
from verl_video_tools.data.formats.fields import find_moved_video, listed_options, split_name


class VideoEspresso(Benchmark):
    """See the module."""

    name: ClassVar[str] = "video-espresso"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions, with their place in the file as `number`."""
        for number, entry in enumerate(read_entries(annotations)):
            yield {"number": number, **entry} if isinstance(entry, dict) else entry

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        options = listed_options(entry["options"], "options") if entry.get("options") else []
        return benchmark_row(
            self.name,
            index=str(entry["number"]),
            split=split_name(files.annotations, "test" if options else "train"),
            video_path=find_moved_video(files.videos, str(required(entry, "video_path"))),
            question=str(required(entry, "question")),
            options=options,
            truth=str(required(entry, "correct_answer" if options else "answer")),
        )
