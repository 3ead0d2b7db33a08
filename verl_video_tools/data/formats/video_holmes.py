"""Video-Holmes (arXiv 2505.21374): 1837 questions with six options on 270 suspense short films, and 1551 to train on.

Format: `test_Video-Holmes.json` and `train_Video-Holmes.json`, lists of `video ID`, `Question ID`, `Question Type` (SR,
IMC, TCI, TA, MHR, PAR, CTI), `Question`, `Options` (by letter), `Answer` (letter), `Explanation`; videos
`<video ID>.mp4`. Read from evaluate.py and Pipeline/example_questions of github.com/TencentARC/Video-Holmes.
"""

from __future__ import annotations

from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, find_video, required
from verl_video_tools.data.formats.fields import lettered_options, split_name


class VideoHolmes(Benchmark):
    """See the module."""

    name: ClassVar[str] = "video-holmes"
    groupings: ClassVar[tuple[str, ...]] = ("question_type",)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        video_id = str(required(entry, "video ID"))
        return benchmark_row(
            self.name,
            index=f"{video_id}_{required(entry, 'Question ID')}",
            split=split_name(files.annotations, "test"),
            video_path=find_video(files.videos, video_id),
            question=str(required(entry, "Question")),
            options=lettered_options(required(entry, "Options"), "Options"),
            truth=str(required(entry, "Answer")),
            groups={"question_type": str(required(entry, "Question Type"))},
        )
