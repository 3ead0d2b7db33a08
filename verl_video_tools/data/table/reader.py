"""A table as a source of rows, like the published formats, whose columns the user names or confirms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.grading import check_question
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, numbered
from verl_video_tools.data.formats.fields import letter_at, tagged_answer
from verl_video_tools.data.rows import make_row
from verl_video_tools.data.table.columns import Columns
from verl_video_tools.data.table.files import LINE, TableFiles
from verl_video_tools.data.table.values import (
    as_text,
    find_own_video,
    is_empty,
    named_video,
    options_of,
    segments_of,
    type_of,
)

_PLACE = "\0place"
"""Field of a record: its place in the table, from 0."""
_SOME_JUDGE = object()
"""Whether there is one is for the run to say."""


class Table(Benchmark):
    """A table of your own: CSV, TSV, JSON, JSON lines or parquet, or the folder of a Hugging Face data set, with a
    question per line and columns for its answer and its video.

    Columns are found by their names and values, or named with `--map`, and shown before anything is written.
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
        self.notes: list[str] = []
        """What of a row that is written was left out, and why."""
        self._ids: dict[str, int] = {}

    def entries(self, annotations: Path) -> Iterator[ReadEntry]:
        return numbered(self.table.records(self.cells.used), _PLACE)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One line of the table.

        Raises:
            RowError: it cannot be a row, or has the id of an earlier one; with the number of its line in a text file.
        """
        try:
            return self._row(entry)
        except RowError as error:
            if LINE not in entry:
                raise
            raise RowError(f"line {entry[LINE]}: {error}") from error

    def _row(self, entry: Entry) -> Row:
        cells = self.cells
        question = self._filled(entry, "question")
        answer = self._filled(entry, "answer")
        options = options_of(cells.values(entry, "options")) if "options" in cells.names else []
        segments = segments_of(cells.values(entry, "segment"))
        name = named_video(cells.value(entry, "video"))
        video = find_own_video(name, self.table.folders, self.videos)
        classification = cells.value(entry, "classification")
        question_type = type_of(cells.value(entry, "type"))
        row = make_row(
            as_text(question),
            _segment_truth(answer) if question_type == "segment" else self._truth(answer, options),
            video,
            options=options,
            question_type=question_type,
            video_segment_seconds=segments[0] if len(segments) == 1 else None,
            data_source=self.table.path.stem,
            split=self.table.split,
            classification=None if is_empty(classification) else as_text(classification),
        )
        try:
            check_question(Sample.from_row(row), _SOME_JUDGE)
        except UsageError as error:
            raise RowError(str(error)) from error
        own_id = cells.value(entry, "id")
        self._take_id("" if is_empty(own_id) else as_text(own_id), entry, row)
        if len(segments) > 1:
            self.notes.append(
                f"{as_text(question)!r:.60} names {len(segments)} segments; a row holds one, and has none"
            )
        return row

    def _filled(self, entry: Entry, field: str) -> Any:
        value = self.cells.value(entry, field)
        if is_empty(value):
            raise RowError(
                f"the column {self.cells.names[field][0]!r} ({field}) is empty; fill it, or leave the row out"
            )
        return value

    def _truth(self, answer: Any, options: Sequence[str]) -> Any:
        if options and self.cells.answer_form != "text":
            name, first = self.cells.names["answer"][0], int(self.cells.answer_form[-1])
            text = as_text(answer)
            if not text.isdecimal() or not first <= int(text) < first + len(options):
                raise RowError(
                    f"the answer ({name}) must be the number of an option, from {first} to {first + len(options) - 1}, "
                    f"got {text!r:.80}"
                )
            return letter_at(int(text) - first, options, name)
        return answer if isinstance(answer, list) else tagged_answer(as_text(answer))

    def _take_id(self, own_id: str, entry: Entry, row: Row) -> None:
        """The id of the table, which no two rows share, else the place in it."""
        if not own_id:
            row["extra_info"]["index"] = entry[_PLACE]
            return
        if own_id in self._ids:
            raise RowError(
                f"the id {own_id!r} is that of row {self._ids[own_id]} already; give each question an id of its own, "
                "or leave the column out: --map id="
            )
        self._ids[own_id] = entry[_PLACE]
        row["extra_info"]["index"] = own_id


def _segment_truth(answer: Any) -> list[float]:
    """Raises RowError where the answer is no segment, or several."""
    segments = segments_of([answer])
    if len(segments) != 1:
        raise RowError(f"the answer to a question of type segment is one segment, got {as_text(answer)!r:.80}")
    return list(segments[0])


def survey(source: Table, files: BenchmarkFiles) -> tuple[list[tuple[int, Mapping[str, Any]]], list[str]]:
    """Rows of the first records, with their places, and what is wrong with the others; nothing is remembered of them.

    Returns:
        Rows by their number from 0, and faults that begin with it.
    """
    trial = Table(source.table, source.cells, source.videos)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    faults: list[str] = []
    for number, record in enumerate(numbered(source.table.first, _PLACE)):
        try:
            if isinstance(record, RowError):
                raise record
            rows.append((number, trial.row(record, files)))
        except RowError as error:
            faults.append(f"row {number}: {error}")
    return rows, faults
