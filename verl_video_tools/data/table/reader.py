"""A table as a source of rows, like the published formats, whose columns the user names or confirms."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as TextTable

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.grading import check_question
from verl_video_tools.core.types import QuestionType, Sample
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, numbered
from verl_video_tools.data.formats.fields import tagged_answer
from verl_video_tools.data.rows import make_row
from verl_video_tools.data.table.columns import FIELDS, Columns
from verl_video_tools.data.table.files import TableFiles
from verl_video_tools.data.table.values import (
    as_text,
    find_own_video,
    is_empty,
    named_video,
    options_of,
    segment_of,
    type_of,
)

_PLACE = "\0place"
"""Field of a record: its place in the table, from 0."""
_SOME_JUDGE = object()
"""Whether there is one is for the run to say."""
_ROWS_SHOWN = 3
_FAULTS_SHOWN = 5
_CELL_CHARACTERS = 44


class Table(Benchmark):
    """A table of your own: CSV, TSV, JSON, JSON lines or parquet, or the folder of a Hugging Face data set, with a
    question per line and columns for its answer and its video.

    Columns are found by their names, or named with `--map`, and shown before anything is written.
    Fields: question, answer, options, video, segment, id, type, classification.
    """

    name = "table"

    def __init__(self, table: TableFiles, cells: Columns, videos: Path | None = None) -> None:
        """
        Args:
            table: the files.
            cells: what its columns hold.
            videos: folder of the videos; None: paths start from the table's folder.
        """
        self.table = table
        self.cells = cells
        self.videos = videos

    def entries(self, annotations: Path) -> Iterator[ReadEntry]:
        return numbered(self.table.records(self.cells.used), _PLACE)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One line of the table. Raises RowError where it cannot be a row."""
        cells = self.cells
        question = self._filled(entry, "question")
        answer = self._filled(entry, "answer")
        options = options_of(cells.values(entry, "options")) if "options" in cells.names else []
        name = named_video(cells.value(entry, "video"))
        video = find_own_video(name, self.table.folders, self.videos)
        classification, own_id = cells.value(entry, "classification"), cells.value(entry, "id")
        question_type = type_of(cells.value(entry, "type"))
        row = make_row(
            as_text(question),
            self._truth(answer, options, question_type),
            video,
            options=options,
            question_type=question_type,
            video_segment_seconds=segment_of(cells.values(entry, "segment")),
            data_source=self.table.path.stem,
            split=self.table.split,
            classification=None if is_empty(classification) else as_text(classification),
        )
        try:
            check_question(Sample.from_row(row), _SOME_JUDGE)
        except UsageError as error:
            raise RowError(str(error)) from error
        row["extra_info"]["index"] = entry[_PLACE] if is_empty(own_id) else as_text(own_id)
        return row

    def _filled(self, entry: Entry, field: str) -> Any:
        value = self.cells.value(entry, field)
        if is_empty(value):
            raise RowError(
                f"the column {self.cells.names[field][0]!r} ({field}) is empty; fill it, or leave the row out"
            )
        return value

    def _truth(self, answer: Any, options: Sequence[str], question_type: QuestionType | None) -> Any:
        if question_type == "segment":
            return segment_of([answer])
        text = as_text(answer)
        if options and self.cells.answer_form != "text":
            first = int(self.cells.answer_form[-1])
            if not text.isdecimal() or not first <= int(text) < first + len(options):
                raise RowError(
                    f"the answer must be the number of an option, from {first} to {first + len(options) - 1}, got "
                    f"{text!r:.80}"
                )
            return string.ascii_uppercase[int(text) - first]
        return answer if isinstance(answer, list) else tagged_answer(text)


def show(source: Table, console: Console) -> bool:
    """Columns, first rows, how paths are resolved, one finished row, and faults among the first rows.

    Returns:
        Whether any of them can be written.
    """
    table, columns = source.table, source.cells
    records = [record for record in table.first if isinstance(record, dict)][:_ROWS_SHOWN]
    text = TextTable("field", "column", *(f"row {number}" for number in range(len(records))))
    for field in FIELDS:
        cells = [" | ".join(map(_cell, columns.values(record, field)))[:_CELL_CHARACTERS] for record in records]
        text.add_row(field, " + ".join(columns.names.get(field, ["none"])), *cells)
    console.print(f"{table.path}: {len(table.files)} file{'s' if len(table.files) > 1 else ''}", soft_wrap=True)
    console.print(text)
    for line in _lines(source):
        console.print(line, soft_wrap=True)
    rows, faults = _survey(source)
    if rows:
        extra_info, truth = rows[0]["extra_info"], rows[0]["reward_model"]["ground_truth"]
        console.print("the first row becomes:")
        console.print(*(f"  | {line}" for line in str(extra_info["question"]).splitlines()), sep="\n", soft_wrap=True)
        console.print(f"  truth {truth!r:.80}, type {extra_info['question_type']}", soft_wrap=True)
        console.print(f"  video {extra_info['video_path']}", soft_wrap=True)
    if faults:
        console.print(f"{len(faults)} of the first {len(faults) + len(rows)} rows cannot be written:")
        console.print(*(f"  {fault}" for fault in faults[:_FAULTS_SHOWN]), sep="\n", soft_wrap=True)
    return bool(rows)


def _lines(source: Table) -> Iterator[str]:
    table, columns = source.table, source.cells
    if unused := [name for name in table.columns if name not in columns.used]:
        yield f"not used: {', '.join(unused)}"
    if columns.answer_form != "text":
        yield f"answers are numbers of options, counted {columns.answer_form}"
    folders = table.folders if source.videos is None else (source.videos,)
    yield f"relative paths of videos start from {' or '.join(os.path.abspath(folder) for folder in folders)}"


def _survey(source: Table) -> tuple[list[Row], list[str]]:
    """Rows of the first records, and what is wrong with the others."""
    files = BenchmarkFiles(annotations=source.table.path, videos=source.videos)
    rows: list[Row] = []
    faults: list[str] = []
    for number, record in enumerate(numbered(source.table.first, _PLACE)):
        try:
            if isinstance(record, RowError):
                raise record
            rows.append(source.row(record, files))
        except RowError as error:
            faults.append(f"row {number}: {error}")
    return rows, faults


def _cell(value: Any) -> str:
    return "" if is_empty(value) else " ".join(as_text(value).split())
