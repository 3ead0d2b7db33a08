"""Items as they were asked: each rollout with its verdicts and what it cost, from which result and tables are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.grading import grade_answer
from verl_video_tools.core.sample import media_of
from verl_video_tools.core.types import AnswerLabel, Judge, Sample
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.formats import GradedItem
from verl_video_tools.data.generation.record import Record
from verl_video_tools.evaluation.costs import costs_of
from verl_video_tools.evaluation.published import ReadItem, read_item
from verl_video_tools.evaluation.questions import Questions


@dataclass(frozen=True, slots=True)
class AskedItem:
    """An item as it was asked once.

    Attributes:
        graded: as the metrics need it; None if it failed, or has no truth.
        read: also read by the published extractor; None without one.
        costs: `costs.COSTS`.
    """

    record: Record
    graded: GradedItem | None
    read: ReadItem | None
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
        be right together, those about parts of a file (`core.clips`), too."""
        extra_info = self.record["extra_info"]
        return read_clip(str(media_of(extra_info) or extra_info.get("question"))).file

    @property
    def is_failed(self) -> bool:
        return bool(self.record["trajectory"].flags)


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
            read = None if graded is None or extractor is None else read_item(graded, extractor)
            items.append(AskedItem(record, graded, read, costs_of(record, protocol)))
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


def _sample(record: Record) -> Sample:
    return Sample.from_row(
        {"extra_info": record["extra_info"], "reward_model": {"ground_truth": record["ground_truth"]}}
    )


def _graded(record: Record) -> GradedItem | None:
    label = record["answer_label"]
    if record["trajectory"].flags or label is None:
        return None
    return GradedItem(_sample(record), record["trajectory"].answer, AnswerLabel(label), int(record["session_id"]))
