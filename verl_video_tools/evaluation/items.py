"""`items.jsonl`: what became of each item, a line for each time that it was asked, in the order of the questions.

Runs are joined by these lines. An item is known by its question (`question_digest`), and where several are the same, by
which of them it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import whole_file
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.generate import Record
from verl_video_tools.evaluation.costs import costs_of
from verl_video_tools.evaluation.published import read_item
from verl_video_tools.evaluation.questions import question_digest
from verl_video_tools.evaluation.results import graded_item

ITEMS = "items.jsonl"

Line = dict[str, Any]
"""`item` (its key), `index`, `video`, `repeat` (from 0), `answer`, `label`, `label_published`, `frames` and the costs.
The labels are null where the rollout failed or the item has no truth, the published one also without an extractor.
Answers that are rated by a rubric have `scores` instead."""


def item_lines(
    records: Iterable[Record], protocol: Mapping[str, Any], extractor: Extractor | None = None
) -> list[Line]:
    """The lines of an evaluation.

    Args:
        records: one for each task, in the order of the questions.
        extractor: the published rule that answers are read by beside ours.
    """
    lines, keys = [], dict[str, str]()
    occurrences: Counter[str] = Counter()
    for record in records:
        trajectory, asked = record["trajectory"], record["extra_info"]
        video = PurePath(str(asked.get("video_path"))).name
        uid = str(record["uid"])
        if uid not in keys:
            digest = question_digest(asked)
            keys[uid] = f"{digest[:16]}-{occurrences[digest]}"
            occurrences[digest] += 1
        counts = trajectory.counts()
        graded = graded_item(record)
        read = None if graded is None or extractor is None else read_item(graded, extractor)
        lines.append(
            {
                "item": keys[uid],
                "index": asked.get("index"),
                "video": video,
                "repeat": int(record["session_id"]),
                "answer": trajectory.answer,
                "label": None if graded is None else graded.label,
                **({} if graded is None or not graded.scores else {"scores": graded.scores}),
                "label_published": None if read is None else read.published.label,
                "frames": counts["initial_frames"] + counts["tool_frames"],
                **costs_of(record, protocol),
            }
        )
    return lines


def write_items(lines: Sequence[Line], folder: Path) -> None:
    with whole_file(folder / ITEMS) as partial, partial.open("wb") as file:
        for line in lines:
            text = json.dumps(line, ensure_ascii=False, default=str)
            file.write(text.encode(errors="backslashreplace") + b"\n")


def read_items(folder: Path) -> list[Line]:
    """Lines of a folder that `vvt eval` wrote, or of that of its `results.json`.

    Raises:
        UsageError: there are none, or they cannot be read.
    """
    path = (folder if folder.is_dir() else folder.parent) / ITEMS
    try:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        if not all({"item", "video", "label"} <= line.keys() for line in lines):
            raise ValueError("not the items of an evaluation")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f"cannot read items from {path}: {error}; give `vvt eval` again to write it, which asks nothing anew"
        ) from error
    return lines


def correctness(lines: Iterable[Line], label: str = "label") -> dict[str, tuple[float, str]]:
    """The share of an item's answers that are right, and its video, by item; without items that failed each time.

    Args:
        label: `label_published` for the verdicts of the published extractor.
    """
    answers: dict[str, list[bool]] = {}
    videos: dict[str, str] = {}
    for line in lines:
        if line.get(label) is not None:
            answers.setdefault(line["item"], []).append(line[label] == AnswerLabel.CORRECT)
            videos[line["item"]] = line["video"]
    return {item: (sum(right) / len(right), videos[item]) for item, right in answers.items()}
