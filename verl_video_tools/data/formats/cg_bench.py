"""CG-Bench (arXiv 2412.12075): 12,129 multiple-choice questions on long videos, with the segments that decide them.

Format: `cgbench.json` (or `cgbench_mini.json`), a list of `qid`, `video_uid`, `question`, `answer`, `choices`,
`right_answer` (letter), `clue_intervals` (segments in seconds), `domain`, `sub_category`, `duration`; videos
`<video_uid>.mp4`, subtitles `<video_uid>.srt`. Read from github.com/CG-Bench/CG-Bench and lmms_eval/tasks/cgbench of
github.com/EvolvingLMMs-Lab/lmms-eval.

A question with several clue intervals gets no `video_segment`, which is a single one. Measured is the accuracy on whole
videos (long-acc.); the benchmark's other measures are not.
"""

from __future__ import annotations

from typing import ClassVar

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, find_video, required
from verl_video_tools.data.formats.fields import listed_options, segment
from verl_video_tools.data.formats.subtitles import ask_with_subtitles, read_srt


class CGBench(Benchmark):
    """See the module."""

    name: ClassVar[str] = "cg-bench"
    groupings: ClassVar[tuple[str, ...]] = ("domain", "sub_category")
    has_subtitles: ClassVar[bool] = True

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One question; with subtitles they stand before it, a line each, where the video has any."""
        video_uid = str(required(entry, "video_uid"))
        video_path = find_video(files.videos, video_uid)
        question = str(required(entry, "question"))
        srt_path = None if files.subtitles is None else files.subtitles / f"{video_uid}.srt"
        if srt_path is not None and srt_path.exists():
            question = ask_with_subtitles(question, read_srt(srt_path), video_path, files.subtitle_frames)
        clues = entry.get("clue_intervals") or []
        return benchmark_row(
            self.name,
            index=str(required(entry, "qid")),
            split="test",
            video_path=video_path,
            question=question,
            options=listed_options(required(entry, "choices"), "choices"),
            truth=str(required(entry, "right_answer")),
            video_segment_seconds=segment(*clues[0]) if len(clues) == 1 and len(clues[0]) == 2 else None,
            groups={name: str(required(entry, name)) for name in self.groupings},
        )
