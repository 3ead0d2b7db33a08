"""Sort questions by whether looking again helps (VideoBrain, arXiv 2602.04094, 3.2).

A base model answers without tools, a teacher with them. Where both are right the first frames suffice; where only the
teacher is, whether it called a tool separates missing frames from a base model that is too weak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import AnswerLabel, Method, Retriever
from verl_video_tools.data.append import no_progress
from verl_video_tools.data.generation.generate import generate
from verl_video_tools.data.generation.record import Record
from verl_video_tools.data.generation.summary import RolloutProgress
from verl_video_tools.data.generation.task import tasks_of_rows
from verl_video_tools.records.records import read_records
from verl_video_tools.rollout.chat_policy import PolicyConfig
from verl_video_tools.services.config import JudgeConfig, ToolModelConfig

Category = Literal["direct", "adaptive", "active", "filtered"]

CATEGORY_OF_LETTER: Mapping[str, Category] = {
    "a": "direct",
    "b": "direct",
    "c": "filtered",  # the paper names only d; its published reward pays a bonus for neither
    "d": "filtered",
    "e": "adaptive",
    "f": "active",
    "g": "active",
    "h": "active",
}
"""The categories of paper 3.2; filtered rows are its anomalies: the better model, which may see more, does worse."""

ModelRole = Literal["base", "teacher"]


@dataclass(frozen=True)
class Evaluator:
    """A model, and what it is shown and may do.

    Attributes:
        method: whose loop runs; `methods.direct.Direct` for none.
    """

    method: Method
    policy: PolicyConfig
    progress: RolloutProgress = no_progress


@dataclass(frozen=True)
class Evaluation:
    """The recorded rollouts of both models, by the row's place in its file, from 0."""

    base: Mapping[int, Record]
    teacher: Mapping[int, Record]


@dataclass(frozen=True, slots=True)
class Failure:
    """A rollout that leaves its row unclassified.

    Attributes:
        reason: its flags, and what happened.
    """

    row: int
    model: ModelRole
    reason: str


@dataclass
class Classification:
    """The letters of a file's rows, by place in the file, and why other rows have none."""

    letters: dict[int, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def in_category(self, *categories: Category) -> list[int]:
        """Rows of these categories, in their order."""
        return [row for row, letter in sorted(self.letters.items()) if CATEGORY_OF_LETTER[letter] in categories]


async def evaluate(
    rows_parquet: str | Path,
    folder: Path,
    base: Evaluator,
    teacher: Evaluator,
    *,
    judge: JudgeConfig | None = None,
    retriever: Retriever | None = None,
    tool_model: ToolModelConfig | None = None,
    retry_flagged: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Let both models answer each row once, side by side, going on where an earlier run into `folder` stopped.

    Args:
        folder: gets `base.jsonl` and `teacher.jsonl`: records of `data.generation.generate`, with labelled answers.
        judge: for open questions.
        retriever: for a teacher that finds frames by text.
        tool_model: for a teacher whose tools ask a model.
        retry_flagged: make those rollouts again that are recorded as failed.
        settings: as `generate` takes them.

    Raises:
        UsageError: as `generate`.
        EndpointError: as `generate`.
    """
    tasks = tasks_of_rows(rows_parquet, num_samples=1)

    async def recorded(name: ModelRole, evaluator: Evaluator) -> dict[int, Record]:
        path = folder / f"{name}.jsonl"
        await generate(
            tasks,
            path,
            evaluator.method,
            evaluator.policy,
            judge=judge,
            retriever=retriever,
            tool_model=tool_model,
            retry_flagged=retry_flagged,
            label_answers=True,
            settings=settings,
            progress=evaluator.progress,
        )
        wanted = {task.key for task in tasks}
        # Of a rollout that was made again the last record holds.
        lines = (line for line in read_records(path) if (line["uid"], line["session_id"]) in wanted)
        return {int(line["uid"]): line for line in lines}

    return Evaluation(*await asyncio.gather(recorded("base", base), recorded("teacher", teacher)))


def classify(evaluation: Evaluation) -> Classification:
    """The letter of each row.

    A row with a flagged rollout gets none: an endpoint, a judge or a video failed, and no model was wrong.

    Raises:
        UsageError: an answer has no label.
    """
    found = Classification()
    for row in sorted(evaluation.base.keys() & evaluation.teacher.keys()):
        records: dict[ModelRole, Record] = {"base": evaluation.base[row], "teacher": evaluation.teacher[row]}
        failures = [
            Failure(row, model, f"{', '.join(record['trajectory'].flags)}: {record['trajectory'].error}")
            for model, record in records.items()
            if record["trajectory"].flags
        ]
        found.failures += failures
        if not failures:
            found.letters[row] = letter_of(
                base_right=_is_right(records["base"]),
                teacher_right=_is_right(records["teacher"]),
                teacher_looked=bool(records["teacher"]["trajectory"].executed_calls()),
            )
    return found


def letter_of(*, base_right: bool, teacher_right: bool, teacher_looked: bool) -> str:
    """One of a to h: first those with the base model right, of these first those with the teacher right, of these
    first the one in which the teacher called no tool.

    The published reward pays by letters and does not say what they stand for. In this order its matrix agrees with the
    three categories of the paper.
    """
    return "abcdefgh"[4 * (not base_right) + 2 * (not teacher_right) + teacher_looked]


def _is_right(record: Record) -> bool:
    """A partly right answer is not right."""
    label = record.get("answer_label")
    if label is None:
        raise UsageError(f"row {record['uid']}: its record has no answer_label; `vvt data classify` did not make it")
    return AnswerLabel(label) is AnswerLabel.CORRECT
