"""LongVideo-Reason (arXiv 2507.07966): 52,000 questions with reasoning to train on, and 1000 to measure by.

Format: the data set LongVideo-Reason/longvideo-reason, records of `problem` (question with its option lines), `answer`
(a letter, or a text, between answer tags or not), `videos` (one path, `longvila_videos/<id>.mp4`, .webm or .mkv) and
`reasoning`; those to measure by also `problem_id` and `problem_type` (temporal, goal, plot or spatial). The videos'
folder is the one that holds `longvila_videos`, or the folders `longvideo_eval_subset0` to `9` that the archives of
LongVideo-Reason/longvideo_eval_videos unpack to. Five of the 1000 questions have lost their options, or some of them.
Read second-hand: from the README of longvideo-reason in github.com/NVlabs/Long-RL, areal/dataset/longvideo_reason.py of
github.com/inclusionAI/AReaL and lmms_eval/tasks/longvideo_reason of github.com/EvolvingLMMs-Lab/lmms-eval, which says
what the files hold, as opposed to what is said of them.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_first_video, question_of_text, reasoned_turn, split_name

_SUBSETS = tuple(f"longvideo_eval_subset{number}" for number in range(10))


class LongVideoReason(Benchmark):
    """See the module."""

    name = "longvideo-reason"
    groupings = ("problem_type",)
    has_turns = True

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        videos = required(entry, "videos")
        video = PurePosixPath(videos if isinstance(videos, str) else videos[0])
        asked = question_of_text(str(required(entry, "problem")), str(required(entry, "answer")))
        if asked["question_type"] == "mc" and not asked["options"]:
            raise RowError(
                f"the field 'answer' is the letter {asked['truth']!r}, but 'problem' does not end with option lines"
            )
        problem_type = entry.get("problem_type")
        places = [str(video), *(f"{folder}/{video.name}" for folder in _SUBSETS), video.name]
        return benchmark_row(
            self.name,
            index=str(entry.get("problem_id", video.stem)),
            split=split_name(files.annotations, "train"),
            video_path=find_first_video(files.videos, places),
            groups={"problem_type": str(problem_type)} if problem_type else None,
            **asked,
        )

    def taught_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """With the published reasoning as its only turn."""
        turn = reasoned_turn(str(required(entry, "reasoning")), str(required(entry, "answer")))
        return {**self.row(entry, files), "turns": [turn], "template": "reasoning"}
