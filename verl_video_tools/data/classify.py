"""Sort questions by whether looking again helps (VideoBrain, arXiv 2602.04094, 3.2).

A base model answers without tools, and a teacher answers with tools. If both are right, the initial frames suffice.
If only the teacher is right, its tool calls decide: with a call, the base model lacked frames; without a call, it is
too weak.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_json
from verl_video_tools.core.types import AnswerLabel, Method, Retriever
from verl_video_tools.data.append import locked_folder, no_progress
from verl_video_tools.data.export_rollouts import ExportReport, rows_of_records, table_of_rows
from verl_video_tools.data.generate import Progress, Record, generate, tasks_of_rows
from verl_video_tools.data.parquet import read_table, with_texts, write_table
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

LETTER_FIELD, CATEGORY_FIELD = "classification", "question_category"
"""Fields of `extra_info`: the letter, by which VideoBrain's reward pays, and the name of its category."""

_LEARNABLE: tuple[Category, ...] = ("direct", "adaptive", "active")


@dataclass(frozen=True)
class Evaluator:
    """A model with the method whose loop it runs in.

    Attributes:
        method: the method whose loop runs; `methods.direct.Direct` has no tools.
    """

    method: Method
    policy: PolicyConfig
    progress: Progress = no_progress


Rollouts = Mapping[int, Record]
"""Recorded rollouts by the row's place in its file, from 0."""


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
) -> tuple[Rollouts, Rollouts]:
    """Let both models answer each row once, in parallel. The run continues where an earlier run into `folder`
    stopped.

    Args:
        folder: gets `base.jsonl` and `teacher.jsonl`: records of `data.generate`, with labelled answers.
        judge: for open questions.
        retriever: for a teacher that finds frames by text.
        tool_model: for a teacher whose tools ask a model.
        retry_flagged: repeat the rollouts that are recorded as failed.
        settings: as `generate` takes them.

    Returns:
        The rollouts of the base model, and those of the teacher.

    Raises:
        UsageError: as `generate`, or another process classifies into the folder.
        EndpointError: as `generate`.
    """
    tasks = tasks_of_rows(rows_parquet, num_samples=1)

    async def recorded(name: ModelRole, evaluator: Evaluator) -> Rollouts:
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
        keys = {task.key for task in tasks}
        # Of a rollout that was made again the last record holds.
        lines = (line for line in read_records(path) if (line["uid"], line["session_id"]) in keys)
        return {int(line["uid"]): line for line in lines}

    with locked_folder(folder):  # else two processes may lock one file each, and both end
        return await asyncio.gather(recorded("base", base), recorded("teacher", teacher))


def classify(base: Rollouts, teacher: Rollouts) -> tuple[dict[int, str], list[dict[str, Any]]]:
    """The letter of each row by its place in the file, and the failures (`row`, `model`, `reason`). A row has no
    letter if an endpoint, a judge or a video failed, since then no model was wrong.

    Raises:
        UsageError: an answer has no label.
    """
    letters: dict[int, str] = {}
    failures: list[dict[str, Any]] = []
    for row in sorted(base.keys() & teacher.keys()):
        records: dict[ModelRole, Record] = {"base": base[row], "teacher": teacher[row]}
        failures_of_row = [
            {"row": row, "model": model, "reason": f"{', '.join(trajectory.flags)}: {trajectory.error}"}
            for model, record in records.items()
            if (trajectory := record["trajectory"]).flags
        ]
        failures += failures_of_row
        if not failures_of_row:
            letters[row] = letter_of(
                base_right=_is_right(base[row]),
                teacher_right=_is_right(teacher[row]),
                teacher_called=bool(teacher[row]["trajectory"].executed_calls()),
            )
    return letters, failures


def letter_of(*, base_right: bool, teacher_right: bool, teacher_called: bool) -> str:
    """One of a to h: first those with the base model right, of these first those with the teacher right, of these
    first the one in which the teacher called no tool.

    The published reward pays by letters and does not say what they stand for. In this order its matrix agrees with the
    three categories of the paper.
    """
    return "abcdefgh"[4 * (not base_right) + 2 * (not teacher_right) + teacher_called]


def _is_right(record: Record) -> bool:
    """Whether the answer is fully right. A partly right answer does not count."""
    label = record.get("answer_label")
    if label is None:
        raise UsageError(f"row {record['uid']}: its record has no answer_label; `vvt data classify` did not make it")
    return AnswerLabel(label) is AnswerLabel.CORRECT


def export_classified(
    rows_parquet: str | Path,
    folder: Path,
    base: Rollouts,
    teacher: Rollouts,
    *,
    sft_share: float,
) -> tuple[dict[str, Any], ExportReport]:
    """Write `sft.parquet`, `rl.parquet` and `report.json` into `folder`; a file that would have no rows is not written.

    Fine-tuning takes rollouts of the teacher on Adaptive and Active rows (paper 3.3), with and without calls. The paper
    does not say whether these are right; ours are, and follow the method's grammar to the letter. Reinforcement
    learning takes all other rows of the three categories. No row goes into both files. Letter and category are in
    `extra_info` of both.

    Args:
        sft_share: of the rows with such a rollout, the share that fine-tuning takes, 0 to 1; every run draws the same.

    Returns:
        The content of `report.json`: counts of categories and of rows without a letter by data source, letters,
        failures, and the rows of both files; and what became of the teacher's rollouts.

    Raises:
        UsageError: the file of rows cannot be read, or an answer has no label.
    """
    letters, failures = classify(base, teacher)
    categories = {row: CATEGORY_OF_LETTER[letter] for row, letter in letters.items()}
    report = ExportReport()
    usable: dict[int, dict[str, Any]] = {}
    for row in (row for row, category in categories.items() if category in ("adaptive", "active")):
        rows, report_of_row = rows_of_records([teacher[row]], min_accuracy=None, min_iou=0.0, well_formed=True)
        report.kept.update(report_of_row.kept)
        report.dropped.update(report_of_row.dropped)
        for sft_row in rows:
            labels = {LETTER_FIELD: letters[row], CATEGORY_FIELD: categories[row]}
            usable[row] = {**sft_row, "extra_info": sft_row["extra_info"] | labels}
    sft_rows = sorted(random.Random(0).sample(sorted(usable), round(sft_share * len(usable))))
    rl_rows = sorted({row for row, category in categories.items() if category in _LEARNABLE} - {*sft_rows})
    rl_table = read_table(rows_parquet).take(pa.array(rl_rows, pa.int64()))
    if rl_rows:
        labels_of_rows: dict[str, list[str]] = {
            LETTER_FIELD: [letters[row] for row in rl_rows],
            CATEGORY_FIELD: [categories[row] for row in rl_rows],
        }
        extra_info = with_texts(rl_table.column("extra_info").combine_chunks(), labels_of_rows)
        rl_table = rl_table.set_column(rl_table.column_names.index("extra_info"), "extra_info", extra_info)
    tables = {"sft.parquet": table_of_rows([usable[row] for row in sft_rows]), "rl.parquet": rl_table}
    for name, table in tables.items():
        if table.num_rows:
            write_table(table, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)  # of an earlier run, with other options
    counts: dict[str, dict[str, int]] = {}
    for row, record in sorted(base.items()):
        of_source = counts.setdefault(str(record["data_source"]), dict.fromkeys((*_LEARNABLE, "filtered", "failed"), 0))
        of_source[categories.get(row, "failed")] += 1
    content = {
        "counts": counts,
        "letters": {str(row): letter for row, letter in letters.items()},
        "failures": failures,
        "sft_rows": sft_rows,
        "rl_rows": rl_rows,
    }
    write_json(folder / "report.json", content)
    return content, report
