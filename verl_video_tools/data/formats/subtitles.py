"""Subtitles: files in the SubRip format (.srt), and those that belong to certain frames."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, VideoError
from verl_video_tools.video import Video, linspace_indices

_TIME = r"(\d+):(\d\d):(\d\d)[,.](\d{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_HEADING = "Subtitles of the video:"
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Subtitle:
    """One caption; times in seconds of the video."""

    start_seconds: float
    end_seconds: float
    text: str


def read_srt(path: Path) -> list[Subtitle]:
    """The captions of a file in its order, without markup; empty ones are left out.

    Raises:
        RowError: the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError as error:
        raise RowError(f"cannot read subtitles from {path}: {error.strerror or error}") from error
    starts = [(number, times) for number, line in enumerate(lines) if (times := _TIMES.match(line))]
    # A caption ends before the next one's number, which stands in the line before its times.
    ends = [number - lines[number - 1].strip().isdigit() for number, _ in starts[1:]] + [len(lines)]
    subtitles = []
    for (number, times), end in zip(starts, ends, strict=True):
        text = html.unescape(_TAG.sub("", " ".join(lines[number + 1 : end])))
        if text := " ".join(text.split()):
            subtitles.append(Subtitle(_seconds(times.groups()[:4]), _seconds(times.groups()[4:]), text))
    return subtitles


def shown_at(subtitles: Sequence[Subtitle], moments_seconds: Sequence[float]) -> list[Subtitle]:
    """Those that are on the screen at any of the moments, each once, in their order."""
    return [
        subtitle
        for subtitle in subtitles
        if any(subtitle.start_seconds <= moment < subtitle.end_seconds for moment in moments_seconds)
    ]


def ask_with_subtitles(question: str, subtitles: Sequence[Subtitle], video_path: Path, num_frames: int | None) -> str:
    """The question after the subtitles, a line each.

    Args:
        num_frames: only those shown at so many evenly spaced moments; None: all.

    Raises:
        RowError: the video cannot be read.
    """
    if num_frames is not None:
        subtitles = shown_at(subtitles, evenly_spaced_seconds(video_path, num_frames))
    return "\n".join([_HEADING, *(line.text for line in subtitles), "", question])


def asked_with_subtitles(row: Mapping[str, Any]) -> bool:
    """Whether subtitles stand before the row's question, even if none of them is shown at the chosen moments."""
    return str(row["extra_info"]["question"]).startswith(_HEADING)


@lru_cache(maxsize=16)  # the questions about one video follow one another
def evenly_spaced_seconds(video_path: Path, num_frames: int) -> tuple[float, ...]:
    """Times at which so many frames of a video are shown, spread evenly over their numbers, first and last included.

    Raises:
        RowError: the video cannot be read.
    """
    try:
        with Video(video_path) as video:
            times_seconds = video.timestamps_seconds()
    except VideoError as error:
        raise RowError(str(error)) from error
    return tuple(float(times_seconds[index]) for index in linspace_indices(0, len(times_seconds) - 1, num_frames))


def _seconds(parts: Sequence[str]) -> float:
    hours, minutes, seconds, fraction = parts
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")
