"""A table of your own questions as rows (docs/own-data.md): columns by name or `--map`, a row for each line."""

from __future__ import annotations

import ast
import json
import os
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.sample import check_question, clip_path, read_clip
from verl_video_tools.core.types import QuestionType, Sample
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, numbered, with_suffixes, without_letters
from verl_video_tools.data.formats.fields import (
    find_moved_video,
    lettered_options,
    split_options,
    tagged_answer,
    with_slashes,
)
from verl_video_tools.data.rows import make_row
from verl_video_tools.data.table_files import TableFiles
from verl_video_tools.grading.segments import clock_seconds, read_segment

FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "question": (("question",), ("problem",), ("prompt",)),
    "answer": (("answer",), ("solution",), ("label",)),
    "options": (("options",), ("choices",), tuple("abcdefghijklmnopqrstuvwxyz")),
    "video": (("video",), ("video_path",), ("file_name",)),
    "segment": (("segment",), ("video_segment",), ("start", "end")),
    "id": (("id",), ("question_id",)),
    "type": (("type",), ("question_type",)),
    "classification": (("classification",),),
}
"""What a row takes from a table, and the columns that have it, likeliest first, without case: a column for each option
(`A`, `B`, ...), or for start and end. Columns of other names are for `--map`."""
NEEDED = ("question", "answer", "video")

_TYPES: Mapping[str, QuestionType] = {
    **{str(name): name for name in get_args(QuestionType)},
    **dict.fromkeys(("mcq", "multiplechoice"), "mc"),
    **dict.fromkeys(("openended", "freeform"), "open"),
}
"""How tables write types of questions, without case and signs."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_PLACE = "\0place"
"""Field of a record: its place in the table, from 0."""
_SOME_JUDGE = object()
"""Whether there is one is for the run to say."""
_CELLS_SHOWN, _CELL_CHARACTERS, _FAULTS_SHOWN = 3, 44, 5


# ------------------------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        names: columns of each of `FIELDS` that the table has.
        first_option: where answers are numbers of options, the number of the first; None: letters or texts.
    """

    names: Mapping[str, tuple[str, ...]]
    first_option: int | None = None

    def values(self, record: Mapping[str, Any], field: str) -> list[Any]:
        """The cells of a field; none where the table has no column for it."""
        return [record.get(name) for name in self.names.get(field, ())]

    def value(self, record: Mapping[str, Any], field: str) -> Any:
        """The cell of a field; None where there is none."""
        return next(iter(self.values(record, field)), None)


def find_columns(table: TableFiles, assignments: Sequence[str] = ()) -> Columns:
    """The columns of a table.

    Args:
        assignments: texts such as ``question=Q,video=path``, which win: field=column, several columns joined by ``+``,
            none for a field that is not to be read.

    Raises:
        UsageError: an assignment names no such field or column, a needed field has no column, or answers are numbers
            of options that may be counted from 0 or from 1.
    """
    if {"extra_info", "reward_model"} <= set(table.columns):
        raise UsageError(
            f"{table.path} holds rows already ({page('rows')}), or those of a published method; `vvt list "
            "formats` lists the ones that are read"
        )
    mapped = _read_map(assignments, table.columns)
    taken = {name for columns in mapped.values() for name in columns}
    by_name = {name.strip().lower().replace(" ", "_"): name for name in reversed(table.columns) if name not in taken}
    names = {
        field: mapped[field] if field in mapped else next(_found(aliases, by_name), ())
        for field, aliases in FIELDS.items()
    }
    names = {field: columns for field, columns in names.items() if columns}
    if missing := [field for field in NEEDED if field not in names]:
        raise UsageError(
            f"{table.path}: no column was found for {', '.join(missing)}; the columns are {', '.join(table.columns)}; "
            f"name {'it' if len(missing) == 1 else 'them'}: --map {','.join(f'{field}=COLUMN' for field in missing)}"
        )
    return Columns(names, _first_option(table, Columns(names)))


def _found(aliases: Sequence[tuple[str, ...]], by_name: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for names in aliases:
        there = [by_name[name] for name in takewhile(by_name.__contains__, names)]
        if len(there) >= min(2, len(names)):
            yield tuple(there)


def _read_map(assignments: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    fields = "|".join(FIELDS)
    mapped: dict[str, tuple[str, ...]] = {}
    for part in (part for text in assignments for part in re.split(rf",(?=\s*(?:{fields})\s*=)", text)):
        field, sign, value = (word.strip() for word in part.partition("="))
        if not sign or field not in FIELDS or field in mapped:
            raise UsageError(f"--map takes FIELD=COLUMN, once for each of {', '.join(FIELDS)}; got {part!r}")
        names = (value,) if value in columns else tuple(name.strip() for name in value.split("+") if name.strip())
        if unknown := [name for name in names if name not in columns]:
            raise UsageError(f"--map {part.strip()}: there is no column {unknown[0]!r}; there are {', '.join(columns)}")
        most = {"options": len(columns), "segment": 2}.get(field, 1)
        if len(names) > most:
            raise UsageError(f"--map {part.strip()}: {field} takes {most} column{'s' if most > 1 else ''} at most")
        mapped[field] = names
    return mapped


def _first_option(table: TableFiles, columns: Columns) -> int | None:
    """0 or 1 where all answers of the first records to questions with options are numbers of these."""
    numbers: list[tuple[int, int]] = []
    for record in table.first if "options" in columns.names else ():
        if not isinstance(record, Mapping):
            continue
        answer = as_text(columns.value(record, "answer"))
        try:
            options = options_of(columns.values(record, "options"))
        except RowError:
            continue
        if options and answer and not answer.isdecimal():
            return None
        if options and answer and answer not in options:
            numbers.append((int(answer), len(options)))
    if not numbers or any(number > num_options for number, num_options in numbers):
        return None
    if any(number == 0 for number, _ in numbers):
        return 0
    if any(number == num_options for number, num_options in numbers):
        return 1
    raise UsageError(
        f"the answers in column {columns.names['answer'][0]!r} are numbers of options, such as {numbers[0][0]}, and "
        "nothing says whether the first option is 0 or 1; write letters (A, B, ...) or texts instead"
    )


# --------------------------------------------------------------------------------------------------------------- cells


def is_empty(value: Any) -> bool:
    """Whether a cell says nothing: null, not a number, blank, or a list or object without entries."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value or (isinstance(value, Sequence | Mapping) and not value)


def as_text(value: Any) -> str:
    """A cell as text: whole numbers without a decimal point, which tables with gaps give them; lists as JSON."""
    if is_empty(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value) if isinstance(value, list | dict) else str(value).strip()


def options_of(values: Sequence[Any]) -> list[str]:
    """The options in a cell for each, or all in one cell: a list, an object by letters, either as text, lines, or texts
    between ``|`` or ``;`` or after ``A.``, ``B.``, ...

    Returns:
        At least two texts without their letters, or none where all cells are empty.

    Raises:
        RowError: an option between others is empty, or the one cell cannot be split.
    """
    if all(map(is_empty, values)):
        return []
    parsed = _parsed(values[0]) if len(values) == 1 else list(values)
    if isinstance(parsed, Mapping):
        parsed = lettered_options(
            {str(key).upper(): as_text(text) for key, text in parsed.items() if not is_empty(text)}, "options"
        )
    texts = _split(parsed) if isinstance(parsed, str) else [as_text(each) for each in parsed]
    while texts and not texts[-1]:
        texts.pop()
    if not all(texts):  # without it, letters and numbers would mean other options
        raise RowError(f"option {texts.index('') + 1} is empty, got {parsed!r:.120}; fill it, or leave it out")
    if len(texts) < 2:
        raise RowError(
            f"the options cannot be told apart, got {parsed!r:.120}; write them as a JSON list, separated by |, or in "
            "a column for each"
        )
    return without_letters(texts)


def _parsed(value: Any) -> Any:
    """A list or an object, also where it is written as text (by pandas as Python writes it); else the text."""
    if isinstance(value, list | dict):
        return value
    text = as_text(value)
    if text.startswith(("[", "{")):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(text)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                continue
            if isinstance(found, list | dict):
                return found
    return text


def _split(text: str) -> list[str]:
    before, listed = split_options(f"?\n{text}")
    if listed and before == "?":
        return listed
    if "\n" in text:
        return [line.strip() for line in text.splitlines() if line.strip()]
    separator = "|" if "|" in text else ";"
    return [part.strip() for part in text.strip(separator).split(separator)]


def segment_of(values: Sequence[Any]) -> tuple[float, float] | None:
    """A segment in seconds: start and end in a cell each, or one cell with a pair or a text such as ``[2.5, 7]``,
    ``0:02-0:07`` or ``from 2.5 s to 7 s``; None where the cells are empty.

    Raises:
        RowError: a cell holds anything else, several segments, or one that does not end after its start.
    """
    if all(map(is_empty, values)):
        return None
    parsed = _parsed(values[0]) if len(values) == 1 else list(values)
    ends = read_segment(parsed) if isinstance(parsed, str) else None
    if isinstance(parsed, list) and len(parsed) == 2:
        start, end = map(clock_seconds, parsed)
        ends = None if start is None or end is None else (start, end)
    if ends is None or not ends[0] < ends[1]:
        raise RowError(
            f"the segment must name one start and end in seconds or as m:ss, with start < end, got {parsed!r:.80}; "
            "correct it, leave it empty, or leave the column out: --map segment="
        )
    return ends


def type_of(value: Any) -> QuestionType | None:
    """The type of a question; None where the cell is empty.

    Raises:
        RowError: there is no such type.
    """
    if is_empty(value):
        return None
    question_type = _TYPES.get(re.sub(r"[^a-z]", "", str(value).lower()))
    if question_type is None:
        known = ", ".join(get_args(QuestionType))
        way_out = "leave it empty, or leave the column out: --map type="
        raise RowError(f"there is no type of question {value!r:.40}; write {known}, {way_out}")
    return question_type


def named_video(value: Any) -> str:
    """The path of a video as a cell names it: a text, a list of one, or an object with `path`.

    Raises:
        RowError: it names none, several, one on the web, or holds its bytes.
    """
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, Mapping):
        if is_empty(value.get("path")):
            raise RowError("the video is stored in the table, without a path; write it to a file and name that")
        value = value["path"]
    if is_empty(value):
        raise RowError("no video is named; every question needs one")
    if not isinstance(value, str | int):
        raise RowError(f"a row names one video, got {value!r:.80}")
    text = with_slashes(str(value).strip().removeprefix("file://"))
    if _ADDRESS.match(text):
        raise RowError(f"the video is an address, {text!r:.80}; download it, and name the file")
    return text


def find_table_video(name: str, folders: Sequence[Path], moved_to: Path | None = None) -> Path:
    """A video by the path in a table, absolute or relative to the first of the folders that has it, with or without its
    suffix; a part of a video (``v.mp4#t=5,10``) by its file.

    Args:
        moved_to: the folder that the user names: relative paths are below it, and of an absolute path on another
            machine the longest end that lies in it counts.

    Raises:
        RowError: there is no such file.
    """
    file, seconds = read_clip(name)
    path = _find(file, folders, moved_to)
    return path if seconds is None else Path(clip_path(path, *seconds))


def _find(file: str, folders: Sequence[Path], moved_to: Path | None) -> Path:
    if moved_to is not None:
        return Path(file) if os.path.isabs(file) and Path(file).is_file() else find_moved_video(moved_to, file)
    places = [Path(os.path.normpath(folder / file)) for folder in folders]  # of an absolute path, the path itself
    for place in places:
        for candidate in with_suffixes(place):
            if candidate.is_file():
                return candidate
    raise RowError(
        f"no video {file!r} (looked for {os.path.abspath(places[0])}); put it there, or name its folder with --videos"
    )


# ---------------------------------------------------------------------------------------------------------------- rows


class Table(Benchmark):
    """Your own questions: CSV, TSV, JSON, JSON lines, parquet or Arrow, or a folder of a Hugging Face data set.

    Columns are those that `--map` names, or those with the name of a field: question, answer, options, video, segment,
    id, type, classification, and a few others (page Your own data).
    """

    name = "table"

    def __init__(self, table: TableFiles, columns: Columns, videos: Path | None = None) -> None:
        """
        Args:
            videos: folder of the videos; None: paths start from the table's folder.
        """
        self.table = table
        self.cells = columns
        self.videos = videos

    def entries(self, annotations: Path) -> Iterator[ReadEntry]:
        used = [name for names in self.cells.names.values() for name in names]
        return numbered(self.table.records(used), _PLACE)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One line of the table. Raises RowError where it cannot be a row."""
        cells = self.cells
        question, answer = self._filled(entry, "question"), self._filled(entry, "answer")
        options = options_of(cells.values(entry, "options"))
        video = find_table_video(named_video(cells.value(entry, "video")), self.table.folders, self.videos)
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
            classification=as_text(cells.value(entry, "classification")) or None,
        )
        try:
            check_question(Sample.from_row(row), _SOME_JUDGE)
        except UsageError as error:
            raise RowError(str(error)) from error
        row["extra_info"]["index"] = as_text(cells.value(entry, "id")) or entry[_PLACE]
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
        text, first = as_text(answer), self.cells.first_option
        if options and first is not None:
            if not text.isdecimal() or not first <= int(text) < first + len(options):
                raise RowError(
                    f"the answer must be the number of an option, from {first} to {first + len(options) - 1}, got "
                    f"{text!r:.80}"
                )
            return string.ascii_uppercase[int(text) - first]
        return answer if isinstance(answer, list) else tagged_answer(text)


def preview(source: Table) -> tuple[list[str], bool]:
    """Lines that show what the table is taken for: columns, how paths are resolved, a finished row, and faults among
    the first rows; and whether any of these can be written."""
    table, columns = source.table, source.cells
    lines = [str(table.path)]
    for field in FIELDS:
        lines.append(f"  {field}: {' + '.join(columns.names.get(field, ['none']))}")
        for record in [each for each in table.first if isinstance(each, dict)][:_CELLS_SHOWN]:
            cell = " | ".join(filter(None, map(as_text, columns.values(record, field))))
            lines += [f"    {' '.join(cell.split())[:_CELL_CHARACTERS]}"] if cell else []
    used = {name for names in columns.names.values() for name in names}
    if unused := [name for name in table.columns if name not in used]:
        lines.append(f"not used: {', '.join(unused)}")
    if columns.first_option is not None:
        lines.append(f"answers are numbers of options, counted from {columns.first_option}")
    folders = table.folders if source.videos is None else (source.videos,)
    lines.append(f"relative paths of videos start from {' or '.join(os.path.abspath(folder) for folder in folders)}")
    rows, faults = [], []
    files = BenchmarkFiles(annotations=table.path, videos=source.videos)
    for number, entry in enumerate(numbered(table.first, _PLACE)):
        try:
            if isinstance(entry, RowError):
                raise entry
            rows.append(source.row(entry, files))
        except RowError as error:
            faults.append(f"  row {number}: {error}")
    if rows:
        extra_info, truth = rows[0]["extra_info"], rows[0]["reward_model"]["ground_truth"]
        lines += ["the first row becomes:", *(f"  | {line}" for line in str(extra_info["question"]).splitlines())]
        lines.append(f"  truth {truth!r:.80}, type {extra_info['question_type']}, video {extra_info['video_path']}")
    if faults:
        lines.append(f"{len(faults)} of the first {len(faults) + len(rows)} rows cannot be written:")
    # Cells may hold signs that would steer a terminal, or half a surrogate pair.
    return ["".join(filter(str.isprintable, line)) for line in [*lines, *faults[:_FAULTS_SHOWN]]], bool(rows)
