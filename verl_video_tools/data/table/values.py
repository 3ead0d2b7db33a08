"""What a cell of a table says: options, a segment, a type, a video. Empty cells say nothing."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.sample import clip_path, read_clip
from verl_video_tools.core.segments import clock_seconds, read_segment
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.formats.entries import with_suffixes, without_letters
from verl_video_tools.data.formats.fields import find_moved_video, lettered_options, split_options, with_slashes

_SEPARATORS = ("|", ";")
_TYPES: Mapping[str, QuestionType] = {
    **{str(name): name for name in get_args(QuestionType)},
    **dict.fromkeys(("mcq", "multiplechoice", "choice"), "mc"),
    **dict.fromkeys(("oe", "openended", "freeform", "freetext", "text"), "open"),
    **dict.fromkeys(("number", "count", "integer", "numerical"), "numeric"),
    **dict.fromkeys(("grounding", "temporalgrounding"), "segment"),
}
"""How tables write types of questions, without case and signs."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_empty(value: Any) -> bool:
    """Whether a cell says nothing: null, not a number, blank, or a list or object without entries."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value or (isinstance(value, Sequence | Mapping) and not value)


def as_text(value: Any) -> str:
    """A cell as text: whole numbers without a decimal point, which tables with gaps give them; lists as JSON."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value) if isinstance(value, list | dict) else str(value).strip()


# ------------------------------------------------------------------------------------------------------------- options


def options_of(values: Sequence[Any]) -> list[str]:
    """The options in a cell for each, or all in one cell: a list, an object by letters, the JSON of one, a list as
    Python writes it, lines, or texts between ``|`` or ``;`` or after ``A.``, ``B.``, ...

    Returns:
        At least two texts without their letters, or none where all cells are empty.

    Raises:
        RowError: a cell, or an option, between others is empty, or the one cell cannot be split.
    """
    if len(values) > 1:
        filled = [not is_empty(value) for value in values]
        num_options = sum(filled)
        if not all(filled[:num_options]) or num_options == 1:
            raise RowError(f"the options must fill the first of their columns, at least two, got {list(values)!r:.120}")
        return without_letters([as_text(value) for value in values[:num_options]])
    (value,) = values
    if is_empty(value):
        return []
    parsed = _parsed(value)
    if isinstance(parsed, Mapping):
        by_letter = {str(key).upper(): as_text(text) for key, text in parsed.items() if not is_empty(text)}
        return without_letters(lettered_options(by_letter, "options"))
    texts = _split(parsed) if isinstance(parsed, str) else ["" if is_empty(each) else as_text(each) for each in parsed]
    while texts and not texts[-1]:
        texts.pop()
    if not all(texts):  # without it, letters and numbers would mean other options
        raise RowError(f"option {texts.index('') + 1} is empty, got {value!r:.120}; fill it, or leave it out")
    if len(texts) < 2:
        raise RowError(
            f"the options cannot be told apart, got {value!r:.120}; write them as a JSON list, separated by |, or in "
            "a column for each"
        )
    return without_letters(texts)


def _parsed(value: Any) -> Any:
    """A list or an object, also where it is written as text; else the text."""
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
    for separator in _SEPARATORS:
        if separator in text:
            return [part.strip() for part in text.strip(separator).split(separator)]
    return [text]


# ------------------------------------------------------------------------------------------------- segments and types


def segment_of(values: Sequence[Any]) -> tuple[float, float] | None:
    """A segment in seconds: start and end in a cell each, or one cell with a pair or a text such as ``[2.5, 7]``,
    ``0:02-0:07`` or ``from 2.5 s to 7 s``; None where the cells are empty.

    Raises:
        RowError: a cell holds anything else, several segments, or one that does not end after its start.
    """
    if all(map(is_empty, values)):
        return None
    given = list(values) if len(values) == 2 else _parsed(values[0])
    if isinstance(given, list) and len(given) == 1:
        (given,) = given
    if isinstance(given, Mapping):
        given = [given.get("start"), given.get("end")]
    found = read_segment(given) if isinstance(given, str) else None
    if isinstance(given, list | tuple) and len(given) == 2:
        start, end = map(clock_seconds, given)
        found = None if start is None or end is None else (start, end)
    if found is None or not found[0] < found[1]:
        raise RowError(
            f"the segment must name one start and end in seconds or as m:ss, with start < end, got {given!r:.80}; "
            "correct it, leave it empty, or leave the column out: --map segment="
        )
    return found


def type_of(value: Any) -> QuestionType | None:
    """The type of a question, also by other usual names; None where the cell is empty.

    Raises:
        RowError: there is no such type.
    """
    if is_empty(value):
        return None
    found = _TYPES.get(re.sub(r"[^a-z]", "", str(value).lower()))
    if found is None:
        known = ", ".join(get_args(QuestionType))
        way_out = "leave it empty, or leave the column out: --map type="
        raise RowError(f"there is no type of question {value!r:.40}; write {known}, {way_out}")
    return found


# -------------------------------------------------------------------------------------------------------------- videos


def named_video(value: Any) -> str:
    """The path of a video as a cell names it: a text, a list of one, or an object with `path`.

    Raises:
        RowError: it names none, several, one on the web, or holds its bytes.
    """
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, Mapping):
        value = value.get("path") or value.get("video") or value.get("file_name")
        if is_empty(value):
            raise RowError("the video is stored in the table, without a path; write it to a file and name that")
    if is_empty(value):
        raise RowError("no video is named; every question needs one")
    if not isinstance(value, str | int):
        raise RowError(f"a row names one video, got {value!r:.80}")
    text = with_slashes(str(value).strip().removeprefix("file://"))
    if _ADDRESS.match(text):
        raise RowError(f"the video is an address, {text!r:.80}; download it, and name the file")
    return text


def find_own_video(name: str, folders: Sequence[Path], moved_to: Path | None = None) -> Path:
    """A video by the path in a table, absolute or relative to the first of the folders that has it, with or without its
    suffix; a part of a video (``v.mp4#t=5,10``) by its file.

    Args:
        moved_to: the folder that the user names: relative paths are below it, and of an absolute path on another
            machine the longest end that lies in it counts.

    Raises:
        RowError: there is no such file.
    """
    file, seconds = read_clip(name)
    found = _find(file, folders, moved_to)
    return found if seconds is None else Path(clip_path(found, *seconds))


def _find(file: str, folders: Sequence[Path], moved_to: Path | None) -> Path:
    places = [Path(file)] if os.path.isabs(file) else [Path(os.path.normpath(folder / file)) for folder in folders]
    if moved_to is None:
        for place in places:
            for candidate in with_suffixes(place):
                if candidate.is_file():
                    return candidate
        raise RowError(
            f"no video {file!r} (looked for {os.path.abspath(places[0])}); put it there, or name its folder with "
            "--videos"
        )
    if os.path.isabs(file) and Path(file).is_file():
        return Path(file)
    return find_moved_video(moved_to, file)
