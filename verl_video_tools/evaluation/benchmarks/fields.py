"""What annotation files say in their several ways: letters, option lines, times, places of videos, splits."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from verl_video_tools.errors import RowError, UsageError
from verl_video_tools.evaluation.benchmarks.entries import (
    Entry,
    ReadEntry,
    find_video,
    read_entries,
    without_letters,
)
from verl_video_tools.rewards.segments import clock_seconds

_OPTION_LINE = re.compile(r"\s*(?:Options?:)?\s*\(?([A-Z])\s*[.):]\s*(.*\S)\s*")
_OPTIONS_HEADING = re.compile(r"\s*(?:options|choices|candidates)\s*:?\s*", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SPLIT = re.compile(r"(?<![a-z])(train|valid(?:ation)?|val|dev|test)(?![a-z])", re.IGNORECASE)


# ------------------------------------------------------------------------------------------------------------- answers


def letter_at(position: Any, options: Sequence[str], field: str) -> str:
    """The letter of an option by its number from 0.

    Raises:
        RowError: there is no such option.
    """
    try:
        number = int(position)
    except (TypeError, ValueError) as error:
        raise RowError(f"the field {field!r} must be the number of an option, got {position!r}") from error
    if not 0 <= number < len(options):
        raise RowError(f"the field {field!r} is {number}, but there are {len(options)} options, counted from 0")
    return string.ascii_uppercase[number]


def letter_of(answer: Any, options: Sequence[str], field: str) -> str:
    """The letter of the first option with this text, with or without its letter before it; a letter stays what it is.

    Raises:
        RowError: no option has it.
    """
    text = str(answer).strip()
    texts = [option.strip() for option in options]
    if text in texts:
        return string.ascii_uppercase[texts.index(text)]
    by_letter = dict(zip(string.ascii_uppercase, texts, strict=False))
    if text in by_letter:
        return text
    if (labelled := _OPTION_LINE.fullmatch(text)) and by_letter.get(labelled[1]) == labelled[2]:
        return labelled[1]
    raise RowError(f"the field {field!r} is none of the options: {text!r:.80}")


def listed_options(options: Any, field: str) -> list[str]:
    """The texts of a list of options, without the letters that they may all begin with.

    Raises:
        RowError: it is no list, or there are fewer than two.
    """
    if isinstance(options, str) or not isinstance(options, Sequence) or len(options) < 2:
        raise RowError(f"the field {field!r} must list the options, at least two, got {options!r:.80}")
    return without_letters(options)


def lettered_options(options: Any, field: str) -> list[str]:
    """The texts of options that stand under their letters, in the order of these.

    Raises:
        RowError: the letters are not A, B, C, ...
    """
    if not isinstance(options, dict) or not options:
        raise RowError(f"the field {field!r} must hold the options by their letters, got {options!r:.80}")
    given = {str(letter): text for letter, text in options.items() if text is not None}
    letters = sorted(given)
    if "".join(letters) != string.ascii_uppercase[: len(letters)]:
        raise RowError(f"the field {field!r} must have the letters A, B, C, ..., got {', '.join(letters)}")
    return [str(given[letter]).strip() for letter in letters]


def split_options(text: str) -> tuple[str, list[str]]:
    """Question and options of a text that ends with a line for each option: ``A. text``, ``(A) text`` or ``A: text``.

    Returns:
        The text as it is, and no options, where it does not end so.
    """
    lines = text.rstrip().splitlines()
    options: list[str] = []
    read = [_OPTION_LINE.fullmatch(line) for line in lines]
    for start in reversed([number for number, found in enumerate(read) if found and found[1] == "A"]):
        for letter, found in zip(string.ascii_uppercase, read[start:], strict=False):
            if found is None or found[1] != letter:
                break
            options.append(found[2])
        if len(options) == len(lines) - start >= 2:
            question = lines[:start]
            if question and _OPTIONS_HEADING.fullmatch(question[-1]):
                question.pop()
            return "\n".join(question).strip(), options
        options = []
    return text.strip(), []


def tagged_answer(text: Any) -> str:
    """What stands between answer tags, or the whole text where there are none."""
    found = _ANSWER_TAG.search(str(text))
    return (found[1] if found else str(text)).strip()


# --------------------------------------------------------------------------------------------------------------- times


def segment(start: Any, end: Any) -> tuple[float, float] | None:
    """A segment in seconds; None where it is not one, with an end after its start."""
    first, last = clock_seconds(start), clock_seconds(end)
    return (first, last) if first is not None and last is not None and first < last else None


# --------------------------------------------------------------------------------------------------------------- files


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


@contextmanager
def told_with_file(entry: Entry) -> Iterator[None]:
    """Errors of an entry from `read_folder` say in which file it stands.

    Raises:
        RowError: the block did.
    """
    try:
        yield
    except RowError as error:
        name, number = entry[ANNOTATION_FILE]
        raise RowError(f"{name}, row {number}: {error}") from error


def find_first_video(folder: Path | None, names: Sequence[str]) -> Path:
    """The first of several places that has the video.

    Raises:
        RowError: none has.
    """
    for name in names[:-1]:
        try:
            return find_video(folder, name)
        except RowError:
            continue
    return find_video(folder, names[-1])


def find_moved_video(folder: Path | None, path: str) -> Path:
    """A video by a path on another machine: the longest end of it that lies in the folder.

    Raises:
        RowError: not even a file of its name does.
    """
    parts = [part for part in PurePosixPath(path.removeprefix("file://")).parts if part not in ("/", ".", "..")]
    if not parts:
        raise RowError(f"no video is named by {path!r}")
    return find_first_video(folder, ["/".join(parts[start:]) for start in range(len(parts))])


def split_name(annotations: Path, default: str) -> str:
    """`train`, `val` or `test` where the name of the annotation file says so."""
    found = _SPLIT.search(annotations.stem.replace("_", " "))
    if found is None:
        return default
    name = found[1].lower()
    return "val" if name in ("valid", "validation", "dev") else name
