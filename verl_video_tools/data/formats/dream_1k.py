"""DREAM-1K (Tarsier, arXiv 2407.00634): 1000 short videos to be described in detail.

Format: `DREAM-1k.jsonl`, a line per video with `messages` (the request, and a `reference` description), `dataset` (one
of five sources, "DREAM/movie_animation"), `idx`, `vid`, `extra_info` (`events` of the reference, numbers of events,
shots and subjects). Videos `<vid>.mp4`. Read from data/, evaluation/evaluate.py and
evaluation/metrics/evaluate_dream_gpt.py of github.com/bytedance/tarsier.

A description is scored by its authors' code (AutoDQ): a model extracts its events, and asks which of them the reference
entails, and which of the reference's events the description does; F1 of both. No verdict of ours stands for that, so
that videos are described here and not graded: the file to hand in is the annotations with the descriptions in their
place, which `evaluation/evaluate.py` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, Prediction, Submission
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_first_video


class DREAM1K(Benchmark):
    """See the module."""

    name = "dream-1k"
    groupings = ("source",)
    is_graded = False

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        video, source = str(required(entry, "vid", "idx")), str(required(entry, "dataset"))
        row = benchmark_row(
            self.name,
            index=f"{source}_{required(entry, 'idx')}",
            split="test",
            video_path=find_first_video(files.videos, (video,)),
            question=_request(entry),
            truth=_reference(entry),
            groups={"source": source.rpartition("/")[2]},
        )
        row["extra_info"]["annotation"] = json.dumps(entry, ensure_ascii=False)
        return row

    def submission(self, predictions: Sequence[Prediction]) -> Submission:
        """The lines of the annotations, each with its description; of an item that failed it is empty."""
        lines = []
        for each in predictions:
            entry = json.loads(each.sample.extra_info["annotation"])
            for part in _parts(entry, "assistant"):
                part["text"] = each.answer or ""
            lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
        return Submission("DREAM-1k.jsonl", "".join(lines))


def _parts(entry: Entry, role: str) -> list[dict[str, Any]]:
    """The texts of a role's messages."""
    messages = required(entry, "messages")
    return [
        part
        for message in messages
        if isinstance(message, Mapping) and message.get("role") == role
        for part in message["content"]
        if part.get("type") == "text"
    ]


def _request(entry: Entry) -> str:
    return "\n".join(str(part["text"]) for part in _parts(entry, "user"))


def _reference(entry: Entry) -> str:
    return "\n".join(str(part["reference"]) for part in _parts(entry, "assistant"))
