"""Video-MME (arXiv 2405.21075): 2700 multiple-choice questions on 900 videos of 11 seconds to an hour.

Format: the data set lmms-lab/Video-MME on Hugging Face, file `videomme/test-00000-of-00001.parquet`, one question per
record with `videoID`, `duration`, `domain`, `sub_category`, `question_id`, `task_type`, `question`, `options` (each
with its letter), `answer`; videos `data/<videoID>.mp4`, subtitles `subtitle/<videoID>.srt`, which some videos lack.
Read from lmms_eval/tasks/videomme of github.com/EvolvingLMMs-Lab/lmms-eval and the README of
github.com/BradyFU/Video-MME.

With subtitles the paper's authors show those that belong to the sampled frames. A method that looks again samples
frames later, when the question is already asked, so that here it is all subtitles, or those at evenly spaced moments.
"""

from __future__ import annotations

from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    Entry,
    Row,
    benchmark_row,
    find_video,
    required,
    without_letters,
)
from verl_video_tools.data.formats.subtitles import ask_with_subtitles, read_srt


class VideoMME(Benchmark):
    """See the module."""

    name: ClassVar[str] = "video-mme"
    groupings: ClassVar[tuple[str, ...]] = ("duration", "domain", "sub_category", "task_type")
    has_subtitles: ClassVar[bool] = True

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One question; with subtitles they stand before it, a line each, where the video has any."""
        video_id = str(required(entry, "videoID"))
        video_path = find_video(files.videos, video_id)
        question = str(required(entry, "question"))
        srt_path = None if files.subtitles is None else files.subtitles / f"{video_id}.srt"
        if srt_path is not None and srt_path.exists():
            question = ask_with_subtitles(question, read_srt(srt_path), video_path, files.subtitle_frames)
        return benchmark_row(
            self.name,
            index=required(entry, "question_id"),
            split="test",
            video_path=video_path,
            question=question,
            options=without_letters(required(entry, "options")),
            truth=required(entry, "answer"),
            groups={name: required(entry, name) for name in self.groupings},
        )
