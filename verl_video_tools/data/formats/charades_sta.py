"""Charades-STA (arXiv 1705.02101): when does what a sentence says happen in a video of half a minute?

Format: `charades_sta_test.txt` (`charades_sta_train.txt` to train on), lines ``<video> <start> <end>##<sentence>`` with
times in seconds; or the data set lmms-eval/charades_sta, records of `video`, `caption`, `timestamp` [start, end].
Videos `<video>.mp4` of Charades. Read from lmms_eval/tasks/charades_sta of github.com/EvolvingLMMs-Lab/lmms-eval and
readers of the text files in other public repositories.

The answer is a segment; it is right if its overlap with the annotated one is at least a half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.segments import overlap
from verl_video_tools.data.formats import GradedItem
from verl_video_tools.data.formats.entries import Entry, ReadEntry, numbered, read_entries, required
from verl_video_tools.data.formats.fields import segment
from verl_video_tools.data.formats.mapped import MappedBenchmark


class CharadesSTA(MappedBenchmark):
    """See the module."""

    name = "charades-sta"
    published_extractor = "lmms-eval/charades_sta"
    has_split_in_file_name = True
    question = (
        'When in the video does this happen: "{sentence}"?\n'
        "Answer with the start and the end in seconds, as in [2.5, 7.0]."
    )
    type_without_options = "segment"
    segment_fields = ("start", "end")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The sentences with their place in the file as `id`."""
        return numbered(_read_lines(annotations) if annotations.suffix == ".txt" else read_entries(annotations), "id")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `sentence` to ask about, `start` and `end` in seconds, and both as the `answer`."""
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
        answer = f"[{seconds[0]:g}, {seconds[1]:g}]"
        return {"sentence": sentence, "start": seconds[0], "end": seconds[1], "answer": answer}

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """`R@0.3`, `R@0.5`, `R@0.7`: shares of answers with at least so much overlap; `mIoU`: the mean overlap."""
        overlaps = [overlap(item.answer, item.sample.ground_truth) for item in items]
        recalls = {f"R@{least:g}": fmean(value >= least for value in overlaps) for least in (0.3, 0.5, 0.7)}
        return {**recalls, "mIoU": fmean(overlaps)}


def _read_lines(path: Path) -> Iterable[ReadEntry]:
    """Records of a text file; a line of another form is one with the field `line` only."""
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    except OSError as error:
        raise UsageError(f"cannot read annotations from {path}: {error}") from error
    for line in lines:
        head, mark, sentence = line.partition("##")
        parts = head.split()
        if mark and len(parts) == 3:
            yield {"video": parts[0], "timestamp": parts[1:], "caption": sentence}
        elif line.strip():
            yield {"line": line}
