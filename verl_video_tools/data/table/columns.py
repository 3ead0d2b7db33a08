"""Which column of a table holds what: as `--map` says, else by its name."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.data.table.files import TableFiles
from verl_video_tools.data.table.values import as_text, is_empty, options_of

FIELDS = ("question", "answer", "options", "video", "segment", "id", "type", "classification")
"""What a row takes from a table. The first two and `video` are needed."""
NEEDED = ("question", "answer", "video")

AnswerForm = Literal["text", "from 0", "from 1"]
"""What the answers to questions with options are: letters or texts of options, or their numbers, counted so."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "q", "query", "problem", "prompt", "instruction"),
    "answer": (
        *("answer", "correctanswer", "groundtruth", "gt", "truth", "solution", "label", "correct", "correctoption"),
        *("answerletter", "answertext", "answeridx", "answerindex", "target", "a"),
    ),
    "options": ("options", "choices", "candidates"),
    "video": (
        *("videopath", "video", "videofile", "videoname", "videofilename", "filename", "file", "path", "clip"),
        *("clippath", "videoid", "vid", "videos"),
    ),
    "segment": ("videosegment", "segment", "timerange", "timespan"),
    "id": ("questionid", "qid", "id"),
    "type": ("questiontype", "answertype", "qtype", "type"),
    "classification": ("classification",),
}
"""Names of columns, likeliest first, without case and signs."""
_ENDS = (("start", "end"), ("starttime", "endtime"), ("startseconds", "endseconds"))
_OPTION_PREFIXES = ("option", "choice", "candidate", "opt", "a", "")
"""Of columns for an option each, which end with a letter or a number."""


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        names: columns of each of `FIELDS` that the table has; several for options (one each) and segment (start, end).
        answer_form: what the answers are where there are options.
    """

    names: Mapping[str, tuple[str, ...]]
    answer_form: AnswerForm = "text"

    def values(self, record: Mapping[str, Any], field: str) -> tuple[Any, ...]:
        """The cells of a field; none where the table has no column for it."""
        return tuple(record.get(name) for name in self.names.get(field, ()))

    def value(self, record: Mapping[str, Any], field: str) -> Any:
        """The cell of a field; None where there is none."""
        return next(iter(self.values(record, field)), None)

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        return tuple(dict.fromkeys(name for names in self.names.values() for name in names))


def find_columns(table: TableFiles, assignments: Sequence[str] = ()) -> Columns:
    """The columns of a table.

    Args:
        assignments: texts such as ``question=Q,video=path``, which win: field=column, several columns joined by ``+``,
            none for a field that is not to be read.

    Raises:
        UsageError: an assignment names no such field or column, or a needed field has no column.
    """
    if {"extra_info", "reward_model"} <= set(table.columns):
        raise UsageError(
            f"{table.path} holds rows already ({page('rows')}), or those of a published method; `vvt list "
            "formats` lists the ones that are read"
        )
    mapped = _read_map(assignments, table.columns)
    names = {field: columns for field, columns in mapped.items() if columns}
    for field in ("video", "question", "options", "answer", "segment", "id", "type", "classification"):
        taken = {name for columns in names.values() for name in columns}
        free = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed(table.columns) if name not in taken}
        if field not in mapped and (found := next(_named(field, free), None)):
            names[field] = found
    if missing := [field for field in NEEDED if field not in names]:
        raise UsageError(
            f"{table.path}: no column was found for {', '.join(missing)}; the columns are {', '.join(table.columns)}; "
            f"name {'it' if len(missing) == 1 else 'them'}: --map {','.join(f'{field}=COLUMN' for field in missing)}"
        )
    ordered = {field: names[field] for field in FIELDS if field in names}
    return Columns(ordered, _answer_form(table, ordered))


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


def _named(field: str, free: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Columns whose names fit a field, the likeliest first.

    Args:
        free: columns that hold nothing else, by their names without case and signs.
    """
    yield from ((free[name],) for name in _NAMES[field] if name in free)
    if field == "segment":
        yield from ((free[start], free[end]) for start, end in _ENDS if start in free and end in free)
    if field == "options":
        marks: tuple[Sequence[str], ...] = (string.ascii_lowercase, [*map(str, range(26))], [*map(str, range(1, 27))])
        for prefix in _OPTION_PREFIXES:
            for of_options in marks if prefix else marks[:1]:
                names = [*takewhile(free.__contains__, (f"{prefix}{mark}" for mark in of_options))]
                if len(names) >= 2:
                    yield tuple(free[name] for name in names)


def _answer_form(table: TableFiles, names: Mapping[str, tuple[str, ...]]) -> AnswerForm:
    """Numbers of options if no answer of the first records is a letter or a text. Numbers that are texts of options,
    or that are too large, say nothing.

    Raises:
        UsageError: they may be counted from 0 or from 1.
    """
    numbers: list[tuple[int, int]] = []
    for record in table.first if "options" in names else ():
        if not isinstance(record, Mapping):
            continue
        cell = record.get(names["answer"][0])
        answer = "" if is_empty(cell) else as_text(cell)
        try:
            options = options_of([record.get(name) for name in names["options"]])
        except RowError:
            continue
        if options and answer and not answer.isdecimal():
            return "text"
        if options and answer and answer not in options and int(answer) <= len(options):
            numbers.append((int(answer), len(options)))
    if not numbers:
        return "text"
    if any(number == 0 for number, _ in numbers):
        return "from 0"
    if any(number == num_options for number, num_options in numbers):
        return "from 1"
    raise UsageError(
        f"the answers in column {names['answer'][0]!r} are numbers of options, such as {numbers[0][0]}, and nothing "
        "says whether the first option is 0 or 1; write letters (A, B, ...) or texts instead"
    )
