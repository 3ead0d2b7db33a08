"""LVBench (arXiv 2406.08035): 1549 multiple-choice questions on 103 videos of half an hour to two hours.

Format: `video_info.meta.jsonl`, a line per video with `key` (YouTube id), `type` and `qa`, a list of `uid`, `question`
with its option lines ``(A) text``, `answer` (letter), `question_type` (a list), `time_reference` ("00:15-00:19").
lmms-eval's data set has a record per question with these fields and `video_path`. Videos `<key>.mp4`.
Read from the README of github.com/THUDM/LVBench, lmms_eval/tasks/lvbench of github.com/EvolvingLMMs-Lab/lmms-eval and
converters of the file in other public repositories.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    Entry,
    ReadEntry,
    Row,
    benchmark_row,
    find_video,
    questions_of_video,
    read_entries,
    required,
)
from verl_video_tools.data.formats.fields import listed_options, segment, split_options


class LVBench(Benchmark):
    """See the module."""

    name: ClassVar[str] = "lvbench"
    groupings: ClassVar[tuple[str, ...]] = ("question_type", "video_type")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """One entry per question, with its video's `key` and `type`."""
        for entry in read_entries(annotations):
            if isinstance(entry, dict) and isinstance(entry.get("qa"), list):
                video = {"key": entry.get("key"), "type": entry.get("type")}
                yield from questions_of_video(video, entry["qa"])
            else:
                yield entry

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        question = str(required(entry, "question"))
        if entry.get("options"):
            options = listed_options(entry["options"], "options")
        else:
            question, options = split_options(question)
        if not options:
            raise RowError("the field 'question' has no option lines such as (A) text")
        types = required(entry, "question_type")
        return benchmark_row(
            self.name,
            index=required(entry, "uid"),
            split="test",
            video_path=find_video(files.videos, str(required(entry, "video_path", "key"))),
            question=question,
            options=options,
            truth=str(required(entry, "answer")).strip(),
            video_segment_seconds=segment(*_bounds(str(entry.get("time_reference") or ""))),
            groups={
                "question_type": [types] if isinstance(types, str) else [str(name) for name in types],
                "video_type": str(required(entry, "type")),
            },
        )


def _bounds(time_reference: str) -> tuple[str, str]:
    """Start and end of the one segment that is named; nothing where there is none, or several."""
    start, _, end = time_reference.replace("~", "-").partition("-")
    return start, end
