"""The segment of a video that an answer names, as Charades-STA is scored.

Source: `extract_time` of lmms_eval/tasks/charades_sta/utils.py, after the scorer of TimeChat's authors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from verl_video_tools.core.segments import RIGHT_OVERLAP, segment_of
from verl_video_tools.core.temporal import temporal_iou
from verl_video_tools.core.types import Sample
from verl_video_tools.data.extractors import Extractor, Reading

_EXAMPLE = "a specific example is : 20.8 - 30.0 seconds"
"""Of the prompt, which some models repeat."""
_KEYWORDS = ("start", "end", "happen")
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?"
_SECONDS = r"(?<!\d)\d+(?:\.\d+)?"  # from its first digit: a run of digits is read once
_CLOCK_PAIR = re.compile(rf"\b({_CLOCK})\s*[\u2013-]\s*({_CLOCK})\b")
_PAIR = re.compile(rf"({_SECONDS})\s*[\u2013-]\s*({_SECONDS})")
_PAIR_WITH_UNITS = re.compile(rf"({_SECONDS})\s*s?\s*[\u2013-]\s*({_SECONDS})\s*s?")
_ONE_CLOCK = re.compile(rf"\b{_CLOCK}\b")
_ONE_NUMBER = re.compile(rf"\b{_SECONDS}\b")


def published_segment(answer: str) -> tuple[float, float] | None:
    """Start and end in seconds, in ascending order, of the first segment that an answer names; None if it names none.

    Looked at are lines that speak of a start, an end or what happens, or else all; for two clock times with a dash or
    ``to``, two numbers so, clock times one by one, the first number of each of two lines, and numbers with ``s``.
    """
    text = answer.lower().replace(_EXAMPLE, "").replace("to", "-")
    lines = re.split(r"[!?\n]", text)
    lines = [line for line in lines if any(word in line for word in _KEYWORDS)] or lines
    found = (
        _first_pair(lines, _CLOCK_PAIR, _clock)
        or _first_pair(lines, _PAIR, float)
        or _two(map(_clock, chain.from_iterable(map(_ONE_CLOCK.findall, lines))))
        or _two(float(number[0]) for line in lines if (number := _ONE_NUMBER.search(line)))
        or _first_pair(lines, _PAIR_WITH_UNITS, float)
    )
    return (min(found), max(found)) if found else None


def _first_pair(
    lines: Iterable[str], pattern: re.Pattern[str], seconds: Callable[[str], float]
) -> Sequence[float] | None:
    found = next((match for line in lines if (match := pattern.search(line))), None)
    return [seconds(found[1]), seconds(found[2])] if found else None


def _two(times: Iterable[float]) -> Sequence[float] | None:
    first = list(times)[:2]
    return first if len(first) == 2 else None


def _clock(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def _read(answer: str, sample: Sample) -> Reading | None:
    truth = segment_of(sample.ground_truth)
    if sample.question_type != "segment" or truth is None:
        return None
    segment = published_segment(answer)
    if segment is None:
        return Reading(None, False)
    return Reading(f"[{segment[0]:.3f}, {segment[1]:.3f}]", temporal_iou(segment, truth) >= RIGHT_OVERLAP)


CHARADES_STA = Extractor(
    _read, "the first segment in the words of lines that speak of a start or an end; reversed ends change places"
)
