"""Labels and costs of each item of an evaluation: `items.jsonl`. All figures are computed from these lines.

The file has a line for each repeat of an item, in the order of the questions. `vvt eval-table` joins runs by an item's
key: a digest of its question (`question_digest`), with a number if several questions are equal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import media_of, read_clip
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.truths import canonical_letter
from verl_video_tools.core.types import AnswerLabel, Sample, Trajectory
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.generate import Record
from verl_video_tools.evaluation.questions import Questions, question_digest
from verl_video_tools.grading.answers import decided_by_rule, is_unread
from verl_video_tools.video import image_tokens

ITEMS = "items.jsonl"

COSTS = ("visual_tokens", "prompt_tokens", "completion_tokens", "requests")
"""Costs of a rollout, in the order of tables:

- `visual_tokens`: of all frames, each counted once. Two frames of a video input are one, because models merge them.
  None if the model's processor is not known.
- `prompt_tokens`: of all requests, repeated context included, also if the endpoint caches prefixes. None if the
  endpoint does not count them.
- `completion_tokens`: of all replies; None likewise.
- `requests`: replies of the endpoint that the rollout consists of.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One repeat of an item: a line of `items.jsonl`.

    Attributes:
        item: its key.
        uid: its place in its file.
        index: its name in its file.
        video: the file of the first video, else the first image, else the question. Statistics group items by it,
            because answers about one video, or about clips of one file, tend to be right together.
        repeat: number of the repeat, from 0.
        label: None if the rollout failed, or the item has no truth.
        label_published: by the published extractor; `label` for a type of question that it does not read.
        readable, readable_published: whether the answer has an option, a number or a segment.
        metrics: the benchmark's figures of the answer.
        groups: values of each of the benchmark's groupings.
        tools: names of executed tools.
        graded_by: a rule or the judge.
    """

    item: str
    uid: str
    index: Any
    video: str
    repeat: int
    data_source: str
    groups: Mapping[str, list[str]]
    classification: str | None
    answer: str | None
    label: AnswerLabel | None
    label_published: AnswerLabel | None
    readable: bool
    readable_published: bool
    metrics: Mapping[str, float]
    graded_by: str | None
    initial_frames: int
    tool_frames: int
    executed_calls: int
    turns: int
    tools: list[str]
    visual_tokens: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    requests: int
    stop_reason: str
    flags: list[str]
    error: str | None

    @property
    def differs(self) -> bool:
        """Whether our label and the published label disagree on whether the answer is right."""
        return self.label_published is not None and (self.label is AnswerLabel.CORRECT) != (
            self.label_published is AnswerLabel.CORRECT
        )


def items_of(
    questions: Questions, records: Iterable[Record], protocol: Mapping[str, Any], extractor: Extractor | None = None
) -> list[Item]:
    """The items of all tasks that have a record, in the order of the tasks.

    Args:
        records: with `answer_label` unless the rollout failed or has no truth. The last record of a task counts.
        extractor: a published rule that reads answers in addition to ours.
    """
    last = {(str(record["uid"]), int(record["session_id"])): record for record in records}
    items, keys = [], dict[str, str]()
    occurrences: Counter[str] = Counter()
    for task in questions.tasks:
        if (record := last.get(task.key)) is None:
            continue
        if task.uid not in keys:
            digest = question_digest(record["extra_info"])
            keys[task.uid] = f"{digest[:16]}-{occurrences[digest]}"
            occurrences[digest] += 1
        items.append(_item(keys[task.uid], record, questions, protocol, extractor))
    return items


def _item(
    key: str, record: Record, questions: Questions, protocol: Mapping[str, Any], extractor: Extractor | None
) -> Item:
    trajectory, extra_info = record["trajectory"], record["extra_info"]
    counts, usage = trajectory.counts(), record["usage"]
    groups = extra_info.get("groups")
    return Item(
        item=key,
        uid=str(record["uid"]),
        index=extra_info.get("index"),
        video=read_clip(str(media_of(extra_info) or extra_info.get("question"))).file,
        repeat=int(record["session_id"]),
        data_source=str(record["data_source"]),
        # A user's rows may hold groups in any form: anything but a list is one value.
        groups={
            name: [str(each) for each in (value if isinstance(value, list) else [value])]
            for name, value in (groups.items() if isinstance(groups, Mapping) else ())
            if value not in (None, "")
        },
        classification=extra_info.get("classification"),
        answer=trajectory.answer,
        **_labels(record, questions, extractor, has_judge=protocol.get("judge") is not None),
        initial_frames=counts["initial_frames"],
        tool_frames=counts["tool_frames"],
        executed_calls=counts["executed_calls"],
        turns=counts["assistant_turns"],
        tools=sorted({call.name for call in trajectory.executed_calls()}),
        visual_tokens=_visual_tokens(trajectory, protocol["pictures"]),
        prompt_tokens=usage["prompt_tokens"] or None,
        completion_tokens=usage["completion_tokens"] or None,
        requests=usage["requests"],
        stop_reason=str(trajectory.stop_reason),
        flags=trajectory.flags,
        error=trajectory.error,
    )


def _labels(record: Record, questions: Questions, extractor: Extractor | None, *, has_judge: bool) -> dict[str, Any]:
    """The fields of an `Item` about its answer."""
    trajectory, recorded = record["trajectory"], record["answer_label"]
    if trajectory.flags or recorded is None:
        by = "judge failed" if JUDGE_FLAG in trajectory.flags else None
        return (
            dict.fromkeys(("label", "label_published"))
            | dict.fromkeys(("readable", "readable_published"), False)
            | {"metrics": {}, "graded_by": by}
        )
    sample = Sample.from_row(
        {"extra_info": record["extra_info"], "reward_model": {"ground_truth": record["ground_truth"]}}
    )
    # Rules are applied again, because another version may have recorded the label before an update.
    by_rule = decided_by_rule(trajectory.answer, sample, judge_unread=has_judge)
    label = AnswerLabel(recorded) if by_rule is None else by_rule
    readable = readable_published = not is_unread(trajectory.answer, sample)
    label_published = None if extractor is None else label
    if extractor is not None and sample.question_type == "mc":
        letter = extractor.read(trajectory.answer or "", sample.options)
        is_right = letter is not None and letter == canonical_letter(sample.ground_truth, sample.options)
        label_published = AnswerLabel.CORRECT if is_right else AnswerLabel.INCORRECT
        readable_published = letter is not None
    return {
        "label": label,
        "label_published": label_published,
        "readable": readable,
        "readable_published": readable_published,
        "metrics": {} if questions.benchmark is None else questions.benchmark.metrics(sample, trajectory.answer),
        "graded_by": "judge" if by_rule is None else f"rule for {sample.question_type}",
    }


def _visual_tokens(trajectory: Trajectory, pictures: Mapping[str, Any]) -> int | None:
    sizes = pictures["sizes"]
    if not isinstance(sizes, Mapping):  # the server resizes the frames for a processor that we do not know
        return None
    return visual_tokens(trajectory, sizes["factor"], pictures.get("frames_per_patch", 1))


def visual_tokens(trajectory: Trajectory, factor: int, frames_per_patch: int = 1) -> int:
    """Tokens of all frames of a rollout, each counted once.

    Args:
        factor: pixels of a token's side: patch size x merge size of the model.
        frames_per_patch: frames of a video input that the model merges.

    Raises:
        ValueError: a side of a frame is not a multiple of the factor.
    """
    initial = trajectory.initial_frames[::frames_per_patch]
    frames = [*initial, *(frame for call in trajectory.executed_calls() for frame in call.frames)]
    return sum(image_tokens(frame.width, frame.height, factor) for frame in frames)


def read_items(folder: Path) -> list[dict[str, Any]]:
    """The items in a folder of `vvt eval`, also by the path of its `results.json`.

    Raises:
        UsageError: there are no items, or they cannot be read.
    """
    path = (folder if folder.is_dir() else folder.parent) / ITEMS
    try:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        if not all({"item", "video", "label"} <= line.keys() for line in lines):
            raise ValueError("not the items of an evaluation")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f"cannot read items from {path}: {error}; repeat the `vvt eval` command, which writes the file again"
        ) from error
    return lines
