"""Charades-STA (arXiv 1705.02101): when does what a sentence says happen in a video of half a minute?

Format: `charades_sta_test.txt` (`charades_sta_train.txt` to train on), lines ``<video> <start> <end>##<sentence>`` with
times in seconds; or the data set lmms-eval/charades_sta, records of `video`, `caption`, `timestamp` [start, end].
Videos `<video>.mp4` of Charades. Read from lmms_eval/tasks/charades_sta of github.com/EvolvingLMMs-Lab/lmms-eval and
readers of the text files in other public repositories.

The answer is a segment; it is right if its overlap with the annotated one is at least a half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, GradedItem
from verl_video_tools.data.formats.entries import (
    Entry,
    ReadEntry,
    Row,
    benchmark_row,
    find_video,
    not_utf8,
    read_entries,
    required,
)
from verl_video_tools.data.formats.fields import segment, split_name
from verl_video_tools.data.formats.grounding import grounding_metrics

_QUESTION = (
    'When in the video does this happen: "{sentence}"?\nAnswer with the start and the end in seconds, as in [2.5, 7.0].'
)


class CharadesSTA(Benchmark):
    """See the module."""

    name: ClassVar[str] = "charades-sta"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The sentences with their place in the file as `id`."""
        records = _read_lines(annotations) if annotations.suffix == ".txt" else read_entries(annotations)
        for number, entry in enumerate(records):
            yield {"id": number, **entry} if isinstance(entry, dict) else entry

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        if "line" in entry:
            raise RowError(f"not of the form <video> <start> <end>##<sentence>: {entry['line']!r:.80}")
        timestamp = required(entry, "timestamp")
        try:
            start, end = timestamp
        except (TypeError, ValueError) as error:
            raise RowError(f"the field 'timestamp' must be [start, end], got {timestamp!r:.80}") from error
        seconds = segment(start, end)
        if seconds is None:
            raise RowError(f"the field 'timestamp' must be [start, end] with start < end, got [{start}, {end}]")
        sentence = str(required(entry, "caption")).strip().removesuffix(".")
        return benchmark_row(
            self.name,
            index=str(required(entry, "id")),
            split=split_name(files.annotations, "test"),
            video_path=find_video(files.videos, str(required(entry, "video"))),
            question=_QUESTION.format(sentence=sentence),
            truth=f"[{seconds[0]:g}, {seconds[1]:g}]",
            question_type="segment",
            video_segment_seconds=seconds,
        )

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """Recall at overlaps of 0.3, 0.5 and 0.7, and the mean overlap."""
        return grounding_metrics(items)


def _read_lines(path: Path) -> Iterable[ReadEntry]:
    """Records of a text file; a line of another form is one with the field `line` only."""
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    except OSError as error:
        raise UsageError(f"cannot read annotations from {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        head, mark, sentence = line.partition("##")
        parts = head.split()
        if (fault := not_utf8(line, f"line {number} of {path.name}")) is not None:
            yield fault
        elif mark and len(parts) == 3:
            yield {"video": parts[0], "timestamp": parts[1:], "caption": sentence}
        elif line.strip():
            yield {"line": line}
