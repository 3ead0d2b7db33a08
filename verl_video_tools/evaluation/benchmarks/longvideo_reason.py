"""LongVideo-Reason (arXiv 2507.07966): 52,000 questions with reasoning to train on, and 1000 to measure by.

Format: the data set LongVideo-Reason/longvideo-reason, records of `problem` (question with its option lines), `answer`
(a letter, or a text, sometimes between answer tags), `videos` (one path, `longvila_videos/<id>.mp4`) and, for training,
`reasoning`. The videos' folder is the one that holds `longvila_videos`.
Read from eval/eval.py and verl/utils/dataset.py of github.com/NVlabs/Long-RL and areal/dataset/longvideo_reason.py of
github.com/inclusionAI/AReaL.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar

from verl_video_tools.evaluation.benchmarks import Benchmark, BenchmarkFiles
from verl_video_tools.evaluation.benchmarks.entries import Entry, Row, benchmark_row, required
from verl_video_tools.evaluation.benchmarks.fields import find_moved_video, split_name, split_options, tagged_answer
from verl_video_tools.types import default_question_type


class LongVideoReason(Benchmark):
    """See the module."""

    name: ClassVar[str] = "longvideo-reason"

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        videos = required(entry, "videos")
        video = str(videos if isinstance(videos, str) else videos[0])
        question, options = split_options(str(required(entry, "problem")))
        truth = tagged_answer(required(entry, "answer"))
        return benchmark_row(
            self.name,
            index=str(entry.get("id") or PurePosixPath(video).stem),
            split=split_name(files.annotations, "train"),
            video_path=find_moved_video(files.videos, video),
            question=question,
            options=options,
            truth=truth,
            question_type="mc" if options else default_question_type(truth),
        )
