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

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats.entries import ReadEntry, load_json, questions_of_video
from verl_video_tools.data.formats.mapped import MappedBenchmark


class PerceptionTest(MappedBenchmark):
    """See the module."""

    name = "perception-test"
    groupings = ("area", "reasoning")
    index = "{video_id}_{id}"
    split = "train"
    has_split_in_file_name = True
    answer = "answer_id"
    answer_form = "number"
    videos = ("{video_id}",)

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
