"""A table of your own questions as rows (docs/own-data.md): columns by name or `--map`, a row for each line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from verl_video_tools.core.errors import RowError, UsageError, writing
from verl_video_tools.core.files import write_text
from verl_video_tools.core.machine import page
from verl_video_tools.core.numbers import clock_seconds
from verl_video_tools.core.sample import check_question, clip_path, read_clip
from verl_video_tools.core.truths import canonical_letter
from verl_video_tools.core.types import QuestionType, Sample
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, numbered, read_entries, with_suffixes
from verl_video_tools.data.formats.fields import (
    find_moved_video,
    letter_numbered_options,
    split_name,
    split_options,
    tagged_answer,
    with_slashes,
    without_media_marks,
    without_outer_marks,
)
from verl_video_tools.data.parquet import read_schema
from verl_video_tools.data.rows import make_row
from verl_video_tools.grading.segments import read_segment
from verl_video_tools.video.frame_files import (
    IMAGE_SUFFIXES,
    LIST_SUFFIX,
    frame_list,
    frames_of_folder,
    read_rate,
    with_rate,
)

FIELDS = ("question", "answer", "options", "video", "fps", "times", "segment", "id", "type", "classification")
"""What a row takes from a table: a column of that name, without case, or those that `--map` names."""
NEEDED = ("question", "answer", "video")
SEGMENT_ENDS = ("start", "end")
"""Two columns that stand for `segment`."""

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
_NUM_PREVIEWED = 200
"""Records that are read before anything is written: they name the columns."""
_WITHOUT_ROWS = ("dataset_info", "dataset_infos")
"""Files in a data set's folder that describe it."""
_SHARD = re.compile(r"[-_]\d{5}(?:-of-\d{5})?(?:-[0-9a-f]{16})?$")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_PLACE = "\0place"
"""Field of a record: its place in the table, from 0."""
_ANY_JUDGE = object()
"""The judge is the run's to configure."""


class Table(Benchmark):
    """Your own questions: a CSV, TSV, JSON, JSON lines or parquet file, or a folder of a Hugging Face data set.

    Columns are those that `--map` names, or those with the name of a field: question, answer, options, video, fps,
    times, segment (or start and end), id, type, classification (page Your own data).

    Attributes:
        frame_lists: files of the lists of frames that rows name, to be written beside the rows (`write_frame_lists`).
    """

    name = "table"

    def __init__(
        self,
        path: Path,
        *,
        split: str | None = None,
        assignments: Sequence[str] = (),
        videos: Path | None = None,
        first_option: int | None = None,
        frame_lists: Path | None = None,
    ) -> None:
        """Find the files of a table, and which of its columns hold what.

        Args:
            path: a file, or a folder such as `datasets` writes: shards of splits, or `metadata` beside the videos.
            split: of a folder with several splits, the one to read.
            assignments: texts such as ``question=Q,video=path``, which win over names: field=column, several columns
                joined by ``+``, none for a field that is not to be read.
            videos: folder of the videos; None: paths start from the table's folder.
            first_option: the number that answers give the first of a question's options, 0 or 1; None: answers are
                letters or texts of options.
            frame_lists: folder for the lists of videos whose frames the table lists; None: beside the table.

        Raises:
            UsageError: the table cannot be read or has no rows, its folder holds several tables, a needed field has no
                column, or an assignment names no such field or column.
        """
        self.path = path
        self.videos = videos
        self.first_option = first_option
        self.files, self.split = _files_and_split(path, split)
        folder = path if path.is_dir() else path.parent
        self.frame_lists: dict[Path, str] = {}
        self._frame_lists_folder = frame_lists or folder
        self.folders = (videos,) if videos is not None else tuple(dict.fromkeys((folder, self.files[0].parent)))
        media = [field.name for field in self._schema() if _holds_bytes(field.type)]
        self.column_names = tuple(name for name in self._read_column_names() if name not in media)
        try:
            self.columns_of_field = find_columns(path, self.column_names, assignments)
        except UsageError as error:
            if not media:
                raise
            advice = "write each value to a file of its own, and the file's path into a column"
            raise UsageError(f"{error}. {', '.join(media)} holds the bytes of files: {advice}") from error

    def _schema(self) -> Iterable[pa.Field]:
        """The columns with their types; none for files without types."""
        return read_schema(self.files[0]) if self.files[0].suffix == ".parquet" else ()

    def _read_column_names(self) -> tuple[str, ...]:
        if with_types := tuple(field.name for field in self._schema()):
            return with_types
        first = list(islice(chain.from_iterable(map(read_entries, self.files)), _NUM_PREVIEWED))
        names = dict.fromkeys(name for record in first if isinstance(record, Mapping) for name in record)
        if not names:
            raise UsageError(f"{self.path} has no rows" + (f"; the first row: {first[0]}" if first else ""))
        return tuple(names)

    def entries(self, annotations: Path) -> Iterator[ReadEntry]:
        used = [name for names in self.columns_of_field.values() for name in names]
        return numbered(chain.from_iterable(read_entries(file, used) for file in self.files), _PLACE)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One line of the table. Raises RowError where it cannot be a row."""
        question = without_outer_marks(as_text(self._required_cell(entry, "question")))
        answer = self._required_cell(entry, "answer")
        question_type = as_text(self._cell(entry, "type")) or None
        options = options_of(self._cells(entry, "options"))
        truth = segment_of([answer]) if question_type == "segment" else answer
        if not isinstance(truth, list | tuple):
            truth = tagged_answer(as_text(truth))
            if not options and question_type in (None, "mc"):
                question, truth = letter_numbered_options(question, truth)
            truth = self._letter_of_number(truth, options or split_options(question)[1])
        row = make_row(
            question,
            truth,
            self._video(entry),
            options=options,
            question_type=cast("QuestionType | None", question_type),  # `Sample.from_row` refuses others
            video_segment_seconds=segment_of(self._cells(entry, "segment")),
            data_source=self.path.stem,
            split=self.split,
            classification=as_text(self._cell(entry, "classification")) or None,
        )
        row["extra_info"]["index"] = as_text(self._cell(entry, "id")) or entry[_PLACE]  # named in messages
        try:
            check_question(Sample.from_row(row), _ANY_JUDGE)
        except UsageError as error:
            raise RowError(str(error)) from error
        return row

    def _letter_of_number(self, answer: str, options: Sequence[str]) -> str:
        """The letter of an option by its number; any other answer as it is."""
        if not answer.isdecimal() or not options:
            return answer
        if self.first_option is None:
            if canonical_letter(answer, options) is None:
                raise RowError(
                    f"the answer {answer} is none of the options; if it is the number of one, say which number the "
                    "first option has: --first-option 0 or 1"
                )
            return answer
        place = int(answer) - self.first_option
        if not 0 <= place < len(options):
            last = self.first_option + len(options) - 1
            raise RowError(f"the answer is option {answer}, but the options are {self.first_option} to {last}")
        return string.ascii_uppercase[place]

    def _video(self, entry: Entry) -> str:
        """The path of a video file, of a folder of frames with its rate, or of a list of frames."""
        timing = (self._cell(entry, name) for name in ("fps", "times"))
        rate, times = (None if is_empty(cell) else _parsed(cell) for cell in timing)
        cell, moved = self._cell(entry, "video"), self.videos is not None
        names = [] if is_empty(cell) else _parsed(cell)
        frames: tuple[Path, ...] = ()
        if _is_list_of_frames(names):
            frames = tuple(find_table_video(video_name_of(name), self.folders, moved=moved) for name in names)
        else:
            if isinstance(names, list) and len(names) == 1:  # as other trainers name the one video of a question
                (cell,) = names
            path = find_table_video(video_name_of(cell), self.folders, moved=moved)
            if not path.is_dir():
                return str(path)  # a video file has times of its own
        try:
            if not frames and times is None:
                return with_rate(path, read_rate(rate))
            frames = tuple(Path(os.path.abspath(frame)) for frame in frames or frames_of_folder(path))
            content = frame_list(frames, rate, times)
        except (OSError, ValueError) as error:
            raise RowError(f"the frames of the video: {error}") from error
        digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
        listed = self._frame_lists_folder / f"{frames[0].parent.name}-{digest}{LIST_SUFFIX}"
        self.frame_lists[listed] = content
        return str(listed)

    def write_frame_lists(self) -> None:
        """Write the lists of frames that the rows read so far name.

        Raises:
            UsageError: they cannot be written.
        """
        for path, content in self.frame_lists.items():
            with writing(path, "name a file of rows in a folder that can be written"):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, content)

    def _cells(self, entry: Entry, field: str) -> list[Any]:
        """The cells of a field; none where the table has no column for it."""
        return [entry.get(name) for name in self.columns_of_field.get(field, ())]

    def _cell(self, entry: Entry, field: str) -> Any:
        return next(iter(self._cells(entry, field)), None)

    def _required_cell(self, entry: Entry, field: str) -> Any:
        value = self._cell(entry, field)
        if is_empty(value):
            column = self.columns_of_field[field][0]
            raise RowError(f"the column {column!r} ({field}) is empty; fill it, or leave the row out")
        return value

    def preview(self) -> tuple[list[str], bool]:
        """Lines that show how the table is read: columns, folders of videos, the first row, and faults among the first
        rows; and whether any of these can be written."""
        lines = [str(self.path)]
        lines += [f"  {field}: {' + '.join(self.columns_of_field.get(field, ['none']))}" for field in FIELDS]
        used = {name for names in self.columns_of_field.values() for name in names}
        if unused := [name for name in self.column_names if name not in used]:
            lines.append(f"not used: {', '.join(unused)}")
        lines.append(f"relative paths of videos start from {' or '.join(map(os.path.abspath, self.folders))}")
        rows, faults = [], []
        files = BenchmarkFiles(annotations=self.path, videos=self.videos)
        for number, entry in enumerate(islice(self.entries(self.path), _NUM_PREVIEWED)):
            try:
                if not isinstance(entry, Mapping):
                    raise RowError(f"it is no object with named fields: {entry}")
                rows.append(self.row(entry, files))
            except RowError as error:
                faults.append(f"row {number}: {error}")
        if rows:
            extra_info, truth = rows[0]["extra_info"], rows[0]["reward_model"]["ground_truth"]
            lines += ["the first row becomes:", *(f"  | {line}" for line in str(extra_info["question"]).splitlines())]
            lines.append(f"  truth {truth!r:.80}, type {extra_info['question_type']}, video {extra_info['video_path']}")
            lines += _notes(rows, has_types="type" in self.columns_of_field)
        if faults:
            num_rows = len(faults) + len(rows)
            lines.append(f"{len(faults)} of the first {num_rows} rows cannot be written, such as {faults[0]}")
        # Cells may hold characters that would steer a terminal, or half a surrogate pair.
        lines = ["".join(filter(str.isprintable, line)) for line in lines]
        return lines, bool(rows)


def _notes(rows: Sequence[Row], *, has_types: bool) -> Iterator[str]:
    """What a reader of the first rows may want to correct: types that no column gives, and marks within questions."""
    truths_by_type: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        truths_by_type[row["extra_info"]["question_type"]].append(row["reward_model"]["ground_truth"])
    if not has_types:
        counts = [f"{len(truths)} {name} (such as {truths[0]!r:.40})" for name, truths in truths_by_type.items()]
        yield f"types by the answers, as there is no column for them: {', '.join(counts)}"
        if spans := [truth for truth in truths_by_type["open"] if read_segment(truth) is not None]:
            yield (
                f"{len(spans)} of the open answers look like segments, such as {spans[0]!r:.40}; a column `type` with "
                "`segment` has them graded by overlap"
            )
    questions = [row["extra_info"]["question"] for row in rows]
    if num_marked := sum(without_media_marks(question) != question for question in questions):
        yield f"{num_marked} questions hold <video> or <image> amid their text, which models read as words"


# --------------------------------------------------------------------------------------------------- files and columns


def _files_and_split(path: Path, split: str | None) -> tuple[tuple[Path, ...], str]:
    """The files that hold the rows of a split, in order, and its name.

    Raises:
        UsageError: there are no such files, several splits and none is chosen, or one's files are several tables.
    """
    if not path.is_dir():
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"cannot read a table from {path}: expected a folder or a file of {', '.join(SUFFIXES)}")
        return (path,), split or split_name(path, "train")
    paths = sorted(file for file in path.rglob("*") if _holds_rows(file.relative_to(path)) and file.is_file())
    metadata = [file for file in paths if file.stem == "metadata"]
    splits: dict[str, list[Path]] = defaultdict(list)
    for file in metadata or paths:
        folder = file.relative_to(path).parent
        splits[split_name(Path(_SHARD.sub("", file.stem)), split_name(folder, "train"))].append(file)
    if not splits:
        raise UsageError(f"{path} holds no table: no file of {', '.join(SUFFIXES)}")
    chosen = next(iter(splits)) if split is None and len(splits) == 1 else split_name(Path(split or ""), split or "")
    if chosen not in splits:
        fault = "choose one" if split is None else f"there is no {split!r}"
        raise UsageError(f"{path} has the splits {', '.join(sorted(splits))}: {fault}; name it with --split")
    files = splits[chosen]
    if len({(file.parent, file.suffix, _SHARD.sub("", file.stem)) for file in files}) > 1:
        names = ", ".join(str(file.relative_to(path)) for file in files[:4])
        raise UsageError(f"{path} holds several tables ({names}); name one of them")
    return tuple(files), split or chosen


def _holds_rows(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix.lower() in SUFFIXES and path.stem not in _WITHOUT_ROWS


def _holds_bytes(kind: pa.DataType) -> bool:
    """Whether a column holds media: reading it may take gigabytes."""
    if pa.types.is_struct(kind):
        return any(_holds_bytes(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _holds_bytes(kind.value_type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def find_columns(path: Path, columns: Sequence[str], assignments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The columns of each field that the table has; the arguments are those of `Table`, which says what is raised."""
    if {"extra_info", "reward_model"} <= set(columns):
        raise UsageError(
            f"{path} holds rows already ({page('rows')}), or those of a published method; `vvt list formats` lists the "
            "ones that are read"
        )
    if named := {"messages", "conversations"} & set(columns):
        raise UsageError(f"{path} holds dialogues ({min(named)}); read them with --from messages")
    mapped = _read_map(assignments, columns)
    taken = {name for names in mapped.values() for name in names}
    by_name = {name.strip().lower(): name for name in reversed(columns) if name not in taken}
    by_name_or_map = {field: (by_name[field],) for field in FIELDS if field in by_name} | mapped
    if "segment" not in by_name_or_map and {*SEGMENT_ENDS} <= by_name.keys():
        by_name_or_map["segment"] = tuple(by_name[name] for name in SEGMENT_ENDS)
    if missing := [field for field in NEEDED if not by_name_or_map.get(field)]:
        raise UsageError(
            f"{path}: no column is called {', '.join(missing)}; the columns are {', '.join(columns)}; name "
            f"{'it' if len(missing) == 1 else 'them'}: --map {','.join(f'{field}=COLUMN' for field in missing)}"
        )
    return {field: names for field, names in by_name_or_map.items() if names}


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
    """The options in a cell for each, or all in one cell: a list, also as JSON, or texts between ``|``.

    Returns:
        At least two texts, or none where all cells are empty.

    Raises:
        RowError: an option between others is empty, or the one cell holds no two options.
    """
    if all(map(is_empty, values)):
        return []
    cells = _parsed(values[0]) if len(values) == 1 else values
    texts = cells.split("|") if isinstance(cells, str) else [as_text(cell) for cell in cells]
    texts = [text.strip() for text in texts]
    while texts and not texts[-1]:
        texts.pop()
    if not all(texts):  # without it, letters would mean other options
        raise RowError(f"option {texts.index('') + 1} is empty, got {cells!r:.120}; fill it, or leave it out")
    if len(texts) < 2:
        raise RowError(
            f"the options cannot be separated, got {cells!r:.120}; write them as a JSON list, separated by |, or in a "
            "column for each (--map options=A+B)"
        )
    return texts


def _parsed(value: Any) -> Any:
    """A list, also where it is written as JSON; else the text."""
    if isinstance(value, list):
        return value
    text = as_text(value)
    try:
        parsed = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        parsed = None
    return text if parsed is None else parsed


def segment_of(values: Sequence[Any]) -> tuple[float, float] | None:
    """A segment in seconds: start and end in a cell each, or one cell with a pair or a text such as ``[2.5, 7]``,
    ``0:02-0:07`` or ``from 2.5 s to 7 s``; None where the cells are empty.

    Raises:
        RowError: a cell holds anything else, several segments, or one that does not end after its start.
    """
    if all(map(is_empty, values)):
        return None
    cells = _parsed(values[0]) if len(values) == 1 else values
    ends = read_segment(cells) if isinstance(cells, str) else None
    if not isinstance(cells, str) and len(cells) == 2:
        start, end = map(clock_seconds, cells)
        ends = None if start is None or end is None else (start, end)
    if ends is None or not ends[0] < ends[1]:
        raise RowError(
            f"the segment must name one start and end in seconds or as m:ss, with start < end, got {cells!r:.80}; "
            "correct it, leave it empty, or leave the column out: --map segment="
        )
    return ends


def video_name_of(value: Any) -> str:
    """The path of a video in a cell.

    Raises:
        RowError: the cell names none, several, or one on the web.
    """
    if is_empty(value):
        raise RowError("no video is named; every question needs one")
    if not isinstance(value, str | int):
        raise RowError(f"a row names one video, got {value!r:.80}")
    text = with_slashes(str(value).strip().removeprefix("file://"))
    if _ADDRESS.match(text):
        raise RowError(f"the video is an address, {text!r:.80}; download it, and name the file")
    return text


def _is_list_of_frames(cell: Any) -> bool:
    """Whether a cell lists image files; a list of anything else is no video."""
    return (
        isinstance(cell, list)
        and bool(cell)
        and all(isinstance(name, str) and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES for name in cell)
    )


def find_table_video(name: str, folders: Sequence[Path], *, moved: bool = False) -> Path:
    """A video by the path in a table, absolute or relative to the first of the folders that has it, with or without its
    suffix; a part of a video (``v.mp4#t=5,10``) by its file; a folder of frames, with or without its rate.

    Args:
        moved: paths may be those of another machine, of which the longest end that lies in the folder counts.

    Raises:
        RowError: there is no such file.
    """
    file, seconds, rate = read_clip(name)
    places = [Path(os.path.normpath(folder / file)) for folder in folders]  # of an absolute path, the path itself
    is_there = Path.is_file if rate is None else Path.is_dir
    path = next((path for place in places for path in with_suffixes(place) if is_there(path)), None)
    if path is None and seconds is None:  # a folder of frames, whose rate stands in a column
        path = next(filter(Path.is_dir, places), None)
    if path is None and not moved:
        raise RowError(
            f"no video {file!r} (looked for {os.path.abspath(places[0])}); put it there, or name its folder with "
            "--videos"
        )
    path = path or find_moved_video(folders[0], file)
    path = path if rate is None else Path(with_rate(path, Fraction(rate)))
    return path if seconds is None else Path(clip_path(path, *seconds))
