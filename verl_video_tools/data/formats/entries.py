"""What benchmarks share: reading annotation files, finding videos, making rows."""

from __future__ import annotations

import csv
import json
import re
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.truths import canonical_letter
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.parquet import row_batches

Entry = Mapping[str, Any]
"""A question as a benchmark's annotations have it."""

ReadEntry = Entry | RowError
"""What one place in the annotations holds: an entry, or why it cannot be read."""

Row = dict[str, Any]
"""A question as docs/rows.md describes it, without `agent_name`."""

Group = str | Sequence[str]
"""What a question belongs to: one value, or several where its benchmark counts it in each of them."""

VIDEO_SUFFIXES = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".flv", ".ts", ".mpg", ".mpeg", ".wmv")


# -------------------------------------------------------------------------------------------------------------- reading


def read_entries(path: Path, columns: Sequence[str] | None = None) -> Iterator[ReadEntry]:
    """The records of a .parquet, .jsonl, .json, .csv or .tsv file; of .json a list or, after a first line that is an
    object, the lines of a .jsonl file. A line that cannot be read gives the error.

    Args:
        columns: of a .parquet file only these, as far as it has them; None: all.

    Raises:
        UsageError: it cannot be read.
    """
    if path.suffix == ".parquet":
        for batch in row_batches(path, columns, content="annotations"):
            yield from batch.to_pylist()
    elif path.suffix == ".jsonl" or (path.suffix == ".json" and isinstance(next(_read_lines(path), None), dict)):
        yield from _read_lines(path)
    elif path.suffix == ".json":
        entries = load_json(path)
        if not isinstance(entries, list):
            raise UsageError(f"cannot read annotations from {path}: expected a list of questions")
        yield from entries
    elif path.suffix.lower() in (".csv", ".tsv"):
        yield from read_csv(path, "\t" if path.suffix.lower() == ".tsv" else None)
    else:
        raise UsageError(f"cannot read annotations from {path}: expected a .parquet, .json, .jsonl, .csv or .tsv file")


def _read_lines(path: Path) -> Iterator[ReadEntry]:
    """Each line that is not blank as JSON. Only line feeds end a line: JSON may hold other breaks."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield RowError(f"line {number} of {path.name} is not JSON: {error}")
    except OSError as error:
        raise UsageError(f"cannot read annotations from {path}: {error}") from error


def load_json(path: Path) -> Any:
    """A whole JSON document.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read annotations from {path}: {error}") from error


ANNOTATION_FILE = "annotation_file"
"""Field that `read_folder` adds to an entry: its file's name without suffix, and its place there from 0."""


def read_folder(folder: Path, names: Sequence[str]) -> Iterator[ReadEntry]:
    """The entries of the files that a folder has of those named (without suffix), in the order of the names.

    A single file with one of the names may stand for the folder.

    Raises:
        UsageError: there is none of them, or one cannot be read.
    """
    if folder.is_file() and folder.stem in names:
        files = [folder]
    else:
        paths = [folder / f"{name}{suffix}" for name in names for suffix in (".json", ".parquet")]
        files = [path for path in paths if path.exists()]
    if not files:
        raise UsageError(f"{folder}: holds none of the annotation files {', '.join(names)} (.json)")
    for file in files:
        for number, entry in enumerate(read_entries(file)):
            yield {**entry, ANNOTATION_FILE: (file.stem, number)} if isinstance(entry, dict) else entry


def error_in_its_file(error: RowError, entry: Entry) -> RowError:
    """What is wrong with an entry; of one from `read_folder` it says in which file it stands."""
    if ANNOTATION_FILE not in entry:
        return error
    name, number = entry[ANNOTATION_FILE]
    return RowError(f"{name}, row {number}: {error}")


def numbered(entries: Iterable[ReadEntry], field: str) -> Iterator[ReadEntry]:
    """Entries with their place, from 0, in a field, if they have none of that name."""
    for number, entry in enumerate(entries):
        yield {field: number, **entry} if isinstance(entry, dict) else entry


_QUOTES = 'within a value in quotation marks write them twice: "a ""b"" c"'


def read_csv(path: Path, delimiter: str | None = None) -> Iterator[ReadEntry]:
    """The lines of a table as records by the names in its first line. A line with more or fewer values gives the error.

    Bytes that are not UTF-8 become half surrogate pairs, for which `formats.read_rows` refuses their row alone.

    Args:
        delimiter: None: what the first line has most of, of a comma, a semicolon, a tab and a bar.

    Raises:
        UsageError: it cannot be read, as where a quotation mark has no end, or columns have the same name.
    """
    csv.field_size_limit(sys.maxsize)  # a transcript has more than 131,072 characters
    begin = 1
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter or max(",;\t|", key=first.count), strict=True)
            header = enumerate(next(reader, []), start=1)
            names = [name.strip() or f"column {place}" for place, name in header]  # pandas gives its index no name
            if len(set(names)) < len(names):
                raise UsageError(f"{path}: each column needs a name of its own in the first line, got {names}")
            while True:
                begin = reader.line_num + 1
                try:
                    values = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    if reader.line_num > begin:  # the quotation mark has taken other lines with it
                        raise
                    yield RowError(f"line {begin}: {error}; {_QUOTES}")
                    continue
                if len(values) == len(names):
                    yield dict(zip(names, values, strict=True))
                elif values:
                    yield RowError(
                        f"line {begin} has {len(values)} values, the first line names {len(names)} columns; a value "
                        "that holds the delimiter stands in double quotes"
                    )
    except OSError as error:
        raise UsageError(f"cannot read annotations from {path}: {error}") from error
    except csv.Error as error:
        raise UsageError(f"cannot read {path}, lines {begin} to {reader.line_num}: {error}; {_QUOTES}") from error


def questions_of_video(fields: Mapping[str, Any], questions: Sequence[Any]) -> Iterator[Entry]:
    """The questions of one video, each with these fields of it; what is no object stays as it is, to be reported."""
    for question in questions:
        yield {**fields, **question} if isinstance(question, Mapping) else question


def required(entry: Entry, *names: str) -> Any:
    """The first of these fields that the entry has.

    Raises:
        RowError: it has none, or that one is empty.
    """
    for name in names:
        if name in entry:
            if entry[name] is None or entry[name] == "":
                raise RowError(f"the field {name!r} is empty")
            return entry[name]
    raise RowError(f"the field {names[0]!r} is missing; there are: {', '.join(map(str, entry))}")


MediaKind = Literal["video", "image"]


def with_suffixes(path: Path) -> Iterator[Path]:
    """The path, and then with each suffix of a video behind it; one at a time, as most tables name whole files."""
    yield path
    for suffix in VIDEO_SUFFIXES:
        yield path.with_name(path.name + suffix)
        yield path.with_name(path.name + suffix.upper())


def path_below(folder: Path, name: str, kind: str) -> Path:
    """The path of a file that annotations name, whether it exists or not.

    Args:
        kind: what the file is, for the message.

    Raises:
        RowError: the name leads out of the folder.
    """
    path = folder / name
    if ".." in Path(name).parts or not path.is_relative_to(folder):
        raise RowError(f"the {kind} {name!r} lies outside {folder}")
    return path


def find_video(folder: Path | None, name: str, kind: MediaKind = "video") -> Path:
    """A video by its path below the folder, with or without its suffix, or an image by its path; without a folder the
    path that is named.

    Raises:
        RowError: there is none, or the path leads out of the folder.
    """
    if folder is None:
        return Path(name)
    path = path_below(folder, name, kind)
    for candidate in with_suffixes(path) if kind == "video" else (path,):
        if candidate.is_file():
            return candidate
    raise RowError(f"no {kind} {name!r} in {folder}")


# ----------------------------------------------------------------------------------------------------------------- rows


LABEL_OPEN, LABEL_END = r"[(\[\uff08\u3010]?", r"\s*(?:[)\]\uff09\u3011]\s*[.:\uff1a]?|[.:\uff0e\uff1a\u3001])\s*"
"""Patterns of what stands before and after the letter of an option, also as Chinese texts have it."""

NARROW_LETTERS = {code: code - 0xFEE0 for code in range(0xFF21, 0xFF3B)}
"""For `str.translate`: the wide capitals of Chinese, Japanese and Korean texts, \uff21 to \uff3a, as A to Z."""


def without_letters(options: Sequence[Any]) -> list[str]:
    """Options without the letters `A.`, `(A)`, `[A]`, `A:` or `A\u3001` that they all begin with, if they do."""
    texts = [str(option).strip() for option in options]
    labelled = [
        re.match(f"{LABEL_OPEN}{letter}{LABEL_END}", text.translate(NARROW_LETTERS))
        for letter, text in zip(string.ascii_uppercase, texts, strict=False)
    ]
    if len(labelled) == len(texts) and all(labelled):
        return [text[label.end() :] for label, text in zip(labelled, texts, strict=True) if label]
    return texts


def benchmark_row(
    benchmark: str,
    *,
    index: str | int,
    split: str,
    video_path: Path | None,
    question: str,
    truth: str | None,
    options: Sequence[str] = (),
    question_type: QuestionType | None = None,
    video_segment_seconds: tuple[float, float] | None = None,
    groups: Mapping[str, Group] | None = None,
    image_paths: Sequence[Path] = (),
) -> Row:
    """A row whose question is the text, with a line for each option after it.

    Args:
        index: what the benchmark calls the question.
        video_path: None only for a question about images.
        options: texts without letters; none for a question that is not multiple-choice.
        truth: the right option, by its letter in any published form or by its text; the text of the answer where there
            are no options. None: it is not published, and the question is only asked.
        question_type: default: `mc` with options, `open` without.
        video_segment_seconds: where in the video the answer is seen.
        groups: value of each of the benchmark's `groupings`, or list of values; always the one or always the other.
        image_paths: images that the question is about, in place of a video.

    Raises:
        RowError: the question is empty, or the truth names no option.
    """
    if not question.strip():
        raise RowError("the question is empty")
    letters = string.ascii_uppercase[: len(options)]
    if options and truth is not None:
        letter = canonical_letter(truth, options)
        if letter is None:
            raise RowError(f"the truth must be one of the letters {letters}, got {truth!r:.80}")
        truth = letter
    lines = [question.strip(), *(f"{letter}. {text}" for letter, text in zip(letters, options, strict=True))]
    text = "\n".join(lines)
    extra_info: dict[str, Any] = {
        "question": text,
        **({"image_paths": [str(path) for path in image_paths]} if image_paths else {"video_path": str(video_path)}),
        "question_type": question_type or ("mc" if options else "open"),
        "index": index,
        "split": split,
    }
    if options:
        extra_info["options"] = list(options)
    if video_segment_seconds is not None:
        extra_info["video_segment"] = list(video_segment_seconds)
    if groups:
        extra_info["groups"] = dict(groups)
    return {
        "data_source": benchmark,
        "prompt": [{"role": "user", "content": text}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": truth or ""},
        "extra_info": extra_info,
    }
