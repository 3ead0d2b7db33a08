"""Perception Test (arXiv 2305.13786): questions with three options about staged videos.

Format: `mc_question_train.json`, `mc_question_valid.json`, or the files of all tasks: an object with an entry per
video, by its id: `metadata` and `mc_question`, a list of `id`, `question`, `options`, `answer_id` (from 0), `area`,
`reasoning`, `tag`; videos `<id>.mp4`. Read from the README of github.com/google-deepmind/perception_test.

Some videos of cup games have to be cut before the answer is shown (`cut_frame_mapping_*.json` of the data set): that is
left to the user. Grounded questions, tracks and sounds are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    Entry,
    ReadEntry,
    Row,
    benchmark_row,
    find_video,
    questions_of_video,
    required,
)
from verl_video_tools.data.formats.fields import letter_at, listed_options, load_json, split_name


class PerceptionTest(Benchmark):
    """See the module."""

    name: ClassVar[str] = "perception-test"
    groupings: ClassVar[tuple[str, ...]] = ("area", "reasoning")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """One entry per question, with the id of its video as `video_id`."""
        videos = load_json(annotations)
        if not isinstance(videos, Mapping):
            raise UsageError(f"cannot read annotations from {annotations}: expected an object with an entry per video")
        for video_id, video in videos.items():
            if not isinstance(video, Mapping):
                yield RowError(f"the video {video_id!r} is an object with named fields, got {video!r:.80}")
            elif isinstance(questions := video.get("mc_question") or [], list):
                yield from questions_of_video({"video_id": video_id}, questions)
            else:
                yield RowError(f"the field 'mc_question' of {video_id!r} must be a list, got {questions!r:.80}")

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        video_id = str(required(entry, "video_id"))
        options = listed_options(required(entry, "options"), "options")
        return benchmark_row(
            self.name,
            index=f"{video_id}_{required(entry, 'id')}",
            split=split_name(files.annotations, "train"),
            video_path=find_video(files.videos, video_id),
            question=str(required(entry, "question")),
            options=options,
            truth=letter_at(required(entry, "answer_id"), options, "answer_id"),
            groups={name: str(required(entry, name)) for name in self.groupings},
        )
