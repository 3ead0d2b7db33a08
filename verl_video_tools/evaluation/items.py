"""`items.jsonl`: what became of each item, a line for each time that it was asked, in the order of the questions.

Runs are joined by these lines. An item is known by its question (`question_digest`), and where several are the same, by
which of them it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.evaluation.asked_items import AskedItem
from verl_video_tools.evaluation.questions import question_digest

ITEMS = "items.jsonl"

Line = dict[str, Any]
"""`item` (its key), `index`, `video`, `repeat` (from 0), `answer`, `label`, `label_published`, `frames` and the costs.
The labels are null where the rollout failed or the item has no truth, the published one also without an extractor."""


def item_lines(items: Iterable[AskedItem]) -> list[Line]:
    """The lines of an evaluation."""
    lines, keys = [], dict[str, str]()
    occurrences: Counter[str] = Counter()
    for item in items:
        trajectory, asked = item.record["trajectory"], item.record["extra_info"]
        if item.uid not in keys:
            digest = question_digest(asked)
            keys[item.uid] = f"{digest[:16]}-{occurrences[digest]}"
            occurrences[digest] += 1
        counts = trajectory.counts()
        lines.append(
            {
                "item": keys[item.uid],
                "index": asked.get("index"),
                "video": item.video,  # a file's name alone may be that of many: 0001/video.mp4
                "repeat": item.repeat,
                "answer": trajectory.answer,
                "label": None if item.graded is None else item.graded.label,
                "label_published": None if item.read is None else item.read.published.label,
                "frames": counts["initial_frames"] + counts["tool_frames"],
                **item.costs,
            }
        )
    return lines


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
