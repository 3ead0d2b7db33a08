"""What became of each item: its rollout with verdicts and costs, and `items.jsonl`, by whose lines runs are joined.

The file has a line for each time that an item was asked, in the order of the questions. An item is known by its
question (`question_digest`), and where several are the same, by which of them it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.grading import grade_answer
from verl_video_tools.core.sample import media_of, read_clip
from verl_video_tools.core.types import AnswerLabel, Judge, Sample, Trajectory
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.formats import GradedItem
from verl_video_tools.data.generation.record import Record
from verl_video_tools.evaluation.questions import Questions, question_digest
from verl_video_tools.video import image_tokens

ITEMS = "items.jsonl"

COSTS = ("visual_tokens", "prompt_tokens", "completion_tokens", "requests")
"""Of a rollout, in the order of tables:

- `visual_tokens`: of the frames shown, each counted once, two of a video input as one, as the models merge them; None
  where the model's processor is not known.
- `prompt_tokens`: of all requests together, so that what is sent again counts again; None where the endpoint does not
  count them. A cache of prefixes at the endpoint saves time, and none of these.
- `completion_tokens`: of all replies, likewise.
- `requests`: replies of the endpoint that the rollout consists of.
"""

Line = dict[str, Any]
"""`item` (its key), `index`, `video`, `repeat` (from 0), `answer`, `label`, `label_published`, `frames` and the costs.
The labels are null where the rollout failed or the item has no truth, the published one also without an extractor."""


@dataclass(frozen=True, slots=True)
class AskedItem:
    """An item as it was asked once.

    Attributes:
        graded: as the metrics need it; None if it failed, or has no truth.
        published: the same with the published extractor's reading as the answer and its verdict as the label; ours
            where the extractor is made for another type of question. None without an extractor.
        costs: `COSTS`.
    """

    record: Record
    graded: GradedItem | None
    published: GradedItem | None
    costs: Mapping[str, int | None]

    @property
    def uid(self) -> str:
        """Of the item, however often it is asked."""
        return str(self.record["uid"])

    @property
    def repeat(self) -> int:
        """Which time it was, from 0."""
        return int(self.record["session_id"])

    @property
    def video(self) -> str:
        """The file, the first of several, the first image, or of a text alone the question: questions about one tend to
        be right together, those about parts of a file (`core.sample`), too."""
        extra_info = self.record["extra_info"]
        return read_clip(str(media_of(extra_info) or extra_info.get("question"))).file

    @property
    def is_failed(self) -> bool:
        return bool(self.record["trajectory"].flags)

    @property
    def differs(self) -> bool:
        """Whether one of our verdict and the published one is right and the other is not."""
        if self.graded is None or self.published is None:
            return False
        return (self.graded.label is AnswerLabel.CORRECT) != (self.published.label is AnswerLabel.CORRECT)


def asked_items(
    questions: Questions, records: Iterable[Record], protocol: Mapping[str, Any], extractor: Extractor | None = None
) -> list[AskedItem]:
    """What became of each task, in the order of the tasks; nothing of one that was not asked yet.

    Args:
        records: with `answer_label` where a rollout did not fail and has a truth; of several of a task the last holds.
        protocol: of the evaluation.
        extractor: the published rule that answers are read by beside ours.
    """
    last = {(str(record["uid"]), int(record["session_id"])): record for record in records}
    items = []
    for task in questions.tasks:
        if task.key in last:
            record = last[task.key]
            graded = _graded(record)
            published = None if graded is None or extractor is None else read_by(extractor, graded)
            items.append(AskedItem(record, graded, published, costs_of(record, protocol)))
    return items


async def graded_anew(records: Iterable[Record], rule: Judge | None) -> list[Record]:
    """The records with verdicts by the rules of this version, as all other figures are. Another version may have
    recorded them, when a run goes on after an update. What a language model has judged stays.

    Args:
        rule: the benchmark's own for open questions; None: a language model has judged these.
    """
    anew = []
    for record in records:
        if record["answer_label"] is not None:
            recorded = AnswerLabel(record["answer_label"])
            answer, sample = record["trajectory"].answer, _sample(record)
            record = {**record, "answer_label": await grade_answer(answer, sample, rule or _Judged(recorded))}
        anew.append(record)
    return anew


@dataclass(frozen=True)
class _Judged:
    """A judge that says what one has said when the rollout was recorded."""

    label: AnswerLabel

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        return self.label


def read_by(extractor: Extractor, item: GradedItem) -> GradedItem:
    """The item as a published extractor reads its answer. A missing answer is an empty one to it."""
    reading = extractor.read(item.answer or "", item.sample)
    if reading is None:
        return item
    label = AnswerLabel.CORRECT if reading.is_correct else AnswerLabel.INCORRECT
    return replace(item, answer=reading.text, label=label)


def costs_of(record: Record, protocol: Mapping[str, Any]) -> dict[str, int | None]:
    """The `COSTS` of a recorded rollout."""
    usage = record["usage"]
    tokens = {name: usage[name] or None for name in ("prompt_tokens", "completion_tokens")}
    sizes, visual = protocol["pictures"]["sizes"], None
    if isinstance(sizes, Mapping):  # else the server fits the frames to a processor that we do not know
        visual = visual_tokens(record["trajectory"], sizes["factor"], protocol["pictures"].get("frames_per_patch", 1))
    return {"visual_tokens": visual, **tokens, "requests": usage["requests"]}


def visual_tokens(trajectory: Trajectory, factor: int, frames_per_patch: int = 1) -> int:
    """Tokens of the frames that a rollout was shown, each counted once.

    Args:
        factor: pixels of a token's side: patch size x merge size of the model.
        frames_per_patch: of a video input, whose frames the model merges.

    Raises:
        ValueError: a side of a frame is no multiple of the factor.
    """
    initial = trajectory.initial_frames[::frames_per_patch]
    frames = [*initial, *(frame for call in trajectory.executed_calls() for frame in call.frames)]
    return sum(image_tokens(frame.width, frame.height, factor) for frame in frames)


def _sample(record: Record) -> Sample:
    return Sample.from_row(
        {"extra_info": record["extra_info"], "reward_model": {"ground_truth": record["ground_truth"]}}
    )


def _graded(record: Record) -> GradedItem | None:
    label = record["answer_label"]
    if record["trajectory"].flags or label is None:
        return None
    return GradedItem(_sample(record), record["trajectory"].answer, AnswerLabel(label), int(record["session_id"]))


# ---------------------------------------------------------------------------------------------------------- items.jsonl


def item_lines(items: Iterable[AskedItem]) -> list[Line]:
    """The lines of an evaluation."""
    lines, keys = [], dict[str, str]()
    occurrences: Counter[str] = Counter()
    for item in items:
        trajectory, extra_info = item.record["trajectory"], item.record["extra_info"]
        if item.uid not in keys:
            digest = question_digest(extra_info)
            keys[item.uid] = f"{digest[:16]}-{occurrences[digest]}"
            occurrences[digest] += 1
        counts = trajectory.counts()
        lines.append(
            {
                "item": keys[item.uid],
                "index": extra_info.get("index"),
                "video": item.video,  # a file's name alone may be that of many: 0001/video.mp4
                "repeat": item.repeat,
                "answer": trajectory.answer,
                "label": None if item.graded is None else item.graded.label,
                "label_published": None if item.published is None else item.published.label,
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
