"""Which column of a table holds what: as `--map` says, else by its name, else by its values."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.pages import page
from verl_video_tools.data.formats.fields import letter_of
from verl_video_tools.data.table.files import LINE, TableFiles
from verl_video_tools.data.table.values import (
    as_text,
    find_own_video,
    is_empty,
    looks_like_video,
    named_video,
    options_of,
    segments_of,
    type_of,
)

FIELDS = ("question", "answer", "options", "video", "segment", "id", "type", "classification")
"""What a row takes from a table. The first two and `video` are needed."""
NEEDED = ("question", "answer", "video")

AnswerForm = Literal["text", "from 0", "from 1"]
"""What the answers to questions with options are: letters or texts of options, or their numbers, counted so."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "questiontext", "q", "query", "problem", "prompt", "instruction"),
    "answer": (
        *("answer", "correctanswer", "groundtruth", "gt", "truth", "solution", "label", "correct", "correctoption"),
        *("answerletter", "answeridx", "answerindex", "answertext", "target", "a"),
    ),
    "options": ("options", "choices", "candidates", "multiplechoice", "option", "choice"),
    "video": (
        *("videopath", "video", "videofile", "videoname", "videofilename", "filename", "file", "path", "clip"),
        *("clippath", "media", "videoid", "vid", "videos"),
    ),
    "segment": ("videosegment", "segment", "timerange", "timespan", "span", "interval", "timestamps", "timestamp"),
    "id": ("questionid", "qid", "id", "uid", "sampleid"),
    "type": ("questiontype", "answertype", "qtype", "type"),
    "classification": ("classification",),
}
"""Names of columns, likeliest first, without case and signs."""
_SURE = frozenset({"options", "choices", "candidates", "video", "videopath", "videofile", "segment", "videosegment"})
"""Names that say enough: values that do not fit are faults of their rows."""
_STARTS = ("start", "starttime", "startseconds", "startsec", "begin", "segmentstart", "tstart")
_ENDS = ("end", "endtime", "endseconds", "endsec", "end", "segmentend", "tend")
_NUMBERED = re.compile(r"(option|choice|candidate|opt|a|)[ _-]?([a-z]|\d{1,2})", re.IGNORECASE)
_SHARE = 0.5
"""Of the surveyed values, how many must be of a kind for their column to be taken for it."""


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        names: columns of each of `FIELDS` that the table has; several for options (one each) and segment (start, end).
        found_by: for each of these, "map", "name" or "values".
        answer_form: what the answers are where there are options.
    """

    names: Mapping[str, tuple[str, ...]]
    found_by: Mapping[str, str]
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


def find_columns(table: TableFiles, assignments: Sequence[str] = (), videos: Path | None = None) -> Columns:
    """The columns of a table, guessed from its first records.

    Args:
        assignments: texts such as ``question=Q,video=path``, which win: field=column, several columns joined by ``+``,
            none for a field that is not to be read.
        videos: folder of the videos, if they are not beside the table.

    Raises:
        UsageError: an assignment names no such field or column, or a needed field has no column.
    """
    if {"extra_info", "reward_model"} <= set(table.columns):
        raise UsageError(
            f"{table.path} holds rows already ({page('rows')}), or those of a published method; `vvt list "
            "formats` lists the ones that are read"
        )
    records = [record for record in table.first if isinstance(record, dict)]
    mapped = _read_map(assignments, table.columns)
    names = {field: columns for field, columns in mapped.items() if columns}
    found_by = dict.fromkeys(names, "map")
    guesser = _Guesser(table, records, videos)
    for field in ("video", "question", "options", "answer", "segment", "id", "type", "classification"):
        if field in mapped:
            continue
        taken = {name for columns in names.values() for name in columns}
        guess = guesser.guess(field, [name for name in table.columns if name not in taken], names)
        if guess is not None:
            names[field], found_by[field] = guess
    if missing := [field for field in NEEDED if field not in names]:
        raise UsageError(
            f"{table.path}: no column was found for {', '.join(missing)}; the columns are {', '.join(table.columns)}; "
            f"name {'it' if len(missing) == 1 else 'them'}: --map {','.join(f'{field}=COLUMN' for field in missing)}"
        )
    ordered = {field: names[field] for field in FIELDS if field in names}
    return Columns(ordered, found_by, _answer_form(records, ordered))


def _read_map(assignments: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    fields = "|".join(FIELDS)
    mapped: dict[str, tuple[str, ...]] = {}
    for text in assignments:
        for part in re.split(rf",(?=\s*(?:{fields})\s*=)", text):
            field, sign, value = part.strip().partition("=")
            field, value = field.strip(), value.strip()
            if not sign or field not in FIELDS:
                raise UsageError(f"--map takes FIELD=COLUMN, with one of the fields {', '.join(FIELDS)}; got {part!r}")
            if field in mapped:
                raise UsageError(f"--map names {field} twice; several columns are joined by +, such as options=a+b")
            names = (value,) if value in columns else tuple(name.strip() for name in value.split("+") if name.strip())
            for name in names:
                if name not in columns:
                    raise UsageError(
                        f"--map {part.strip()}: there is no column {name!r}; there are {', '.join(columns)}"
                    )
            most = {"options": len(columns), "segment": 2}.get(field, 1)
            if len(names) > most:
                raise UsageError(f"--map {part.strip()}: {field} takes {most} column{'s' if most > 1 else ''} at most")
            mapped[field] = names
    return mapped


class _Guesser:
    """Guesses from names first, then from values, which must fit in either case."""

    def __init__(self, table: TableFiles, records: Sequence[Mapping[str, Any]], videos: Path | None) -> None:
        self.folders = table.folders if videos is None else (videos,)
        self.videos = videos
        self.filled = {
            name: [record[name] for record in records if not is_empty(record.get(name))]
            for name in table.columns
            if name != LINE
        }

    def guess(
        self, field: str, free: Sequence[str], found: Mapping[str, tuple[str, ...]]
    ) -> tuple[tuple[str, ...], str] | None:
        """Columns for a field, and how they were found; None where none fits."""
        fits = self._test_of(field)
        plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed(free)}
        for name in _NAMES[field]:
            if name in ("id", "uid") and name in plain and not self._is_unique(plain[name]):
                continue  # of the video, say: rows would be left out as repetitions
            if name in plain and (
                self._share(plain[name], fits) > _SHARE or (name in _SURE and self.filled[plain[name]])
            ):
                return (plain[name],), "name"
        if field == "options" and (columns := _option_columns(free)):
            return columns, "name"
        if field == "segment" and (ends := self._start_and_end(plain)):
            return ends, "name"
        if field in ("video", "question"):
            tests: Mapping[str, Callable[[Any], bool]] = {"video": looks_like_video, "question": _asks}
            shares = {name: self._share(name, tests[field]) for name in free}
            likely = [name for name, share in shares.items() if share > _SHARE]
            if len(likely) == 1:
                return (likely[0],), "values"
        return None

    def _test_of(self, field: str) -> Callable[[Any], bool]:
        match field:
            case "video":
                return self._is_video
            case "options":
                return _says(lambda value: options_of([value]))
            case "segment":
                return _says(lambda value: segments_of([value]))
            case "type":
                return _says(type_of)
            case "question" | "classification":
                return lambda value: isinstance(value, str)
            case "id":
                return lambda value: isinstance(value, str | int)
        return lambda value: isinstance(value, str | int | float | list)

    def _is_unique(self, name: str) -> bool:
        return len(set(map(str, self.filled[name]))) > 0.9 * len(self.filled[name])

    def _share(self, name: str, fits: Callable[[Any], bool]) -> float:
        values = self.filled[name]
        return sum(map(fits, values)) / len(values) if values else 0.0

    def _is_video(self, value: Any) -> bool:
        if looks_like_video(value):
            return True
        try:
            find_own_video(named_video(value), self.folders, self.videos)
        except RowError:
            return False
        return True

    def _start_and_end(self, plain: Mapping[str, str]) -> tuple[str, ...] | None:
        for start, end in zip(_STARTS, _ENDS, strict=True):
            if start in plain and end in plain:
                return plain[start], plain[end]
        return None


def _says(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        try:
            read(value)
        except RowError:
            return False
        return True

    return test


def _asks(value: Any) -> bool:
    return isinstance(value, str) and "?" in value and " " in value


def _option_columns(free: Sequence[str]) -> tuple[str, ...]:
    """Columns that are named alike but for a letter or number, from A, 0 or 1 on: at least two."""
    families: dict[tuple[str, bool], dict[str, str]] = {}
    for name in free:
        if (found := _NUMBERED.fullmatch(name.strip())) and (found[1] or found[2].isalpha()):
            families.setdefault((found[1].lower(), found[2].isdigit()), {})[found[2].lower()] = name
    for (_, is_numbered), members in families.items():
        for first in ("0", "1") if is_numbered else ("a",):
            marks = map(str, range(int(first), 26)) if is_numbered else iter(string.ascii_lowercase)
            columns: list[str] = []
            for mark in marks:
                if mark not in members:
                    break
                columns.append(members[mark])
            if len(columns) >= 2:
                return tuple(columns)
    return ()


def _answer_form(records: Sequence[Mapping[str, Any]], names: Mapping[str, tuple[str, ...]]) -> AnswerForm:
    """Numbers of options if some answers are nothing else, and none is a letter or a text but for numbers, which may be
    texts of options as well.

    Raises:
        UsageError: they may be counted from 0 or from 1.
    """
    if "options" not in names:
        return "text"
    numbers: list[tuple[int, int]] = []
    num_texts = 0
    for record in records:
        answer = as_text(record.get(names["answer"][0]))
        try:
            options = options_of([record.get(name) for name in names["options"]])
            if not options:
                continue
            letter_of(answer, options, "answer")
            num_texts += 1
            if not answer.isdecimal():
                return "text"
        except RowError:
            pass
        if answer.isdecimal():
            numbers.append((int(answer), len(options)))
    fits = any(all(first <= number < first + size for number, size in numbers) for first in (0, 1))
    if num_texts == len(numbers) or (num_texts and not fits):  # no number, or one that is neither: a slip
        return "text"
    if any(number == 0 for number, _ in numbers):
        return "from 0"
    if any(number == num_options for number, num_options in numbers):
        return "from 1"
    raise UsageError(
        f"the answers in column {names['answer'][0]!r} are numbers of options, such as {numbers[0][0]}, and nothing "
        "says whether the first option is 0 or 1; write letters (A, B, ...) or texts instead"
    )
