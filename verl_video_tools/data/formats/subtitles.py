"""Subtitles before a question: the texts of a SubRip (.srt) or WebVTT file, a line each."""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError

_TIME = r"(?:\d+:)?\d\d:\d\d[,.]\d{1,3}"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_HEADING = "Subtitles of the video:"
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")


def read_srt(path: Path) -> list[str]:
    """The captions of a file in its order, without markup; empty ones are left out.

    A file without a time is a video in which nobody speaks: speech recognition writes such files.

    Raises:
        RowError: the file cannot be read, or is neither UTF-8 nor UTF-16 with its mark.
    """
    try:
        data = path.read_bytes()
        encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        lines = data.decode(encoding).splitlines()
    except OSError as error:
        raise RowError(f"cannot read subtitles from {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RowError(f"the subtitles in {path} are not UTF-8; save the file as UTF-8") from error
    starts = [number for number, line in enumerate(lines) if _TIMES.match(line)]
    # A caption ends before the next one's number, which stands in the line before its times.
    ends = [number - lines[number - 1].strip().isdigit() for number in starts[1:]]
    captions = []
    for start, end in zip(starts, [*ends, len(lines)], strict=False):
        text = html.unescape(_TAG.sub("", " ".join(lines[start + 1 : end])))
        captions.append(" ".join(text.split()))
    return [caption for caption in captions if caption]


def with_subtitles(question: str, captions: Sequence[str]) -> str:
    """The question after the captions, a line each; the question alone where there are none."""
    if not captions:
        return question
    return "\n".join([_HEADING, *captions, "", question])


def without_subtitles(question: str) -> str:
    """The question that `with_subtitles` got, or the text itself. A caption holds no empty line."""
    return question.partition("\n\n")[2] if question.startswith(_HEADING) else question


def has_subtitles(row: Mapping[str, Any]) -> bool:
    """Whether the row's question comes with subtitles."""
    return str(row["extra_info"]["question"]).startswith(_HEADING)
