"""Grade answers that name a segment of the video, by their overlap with the true segment."""

from __future__ import annotations

import re

from verl_video_tools.core.numbers import DIGITS, clock_seconds
from verl_video_tools.core.truths import segment_of
from verl_video_tools.grading.overlap import temporal_iou

RIGHT_OVERLAP = 0.5
"""Smallest overlap of a right answer."""

_MARKUP = re.compile(r"[*`$\\]|(?<![A-Za-z])_|_(?![A-Za-z])")
_QUOTED = re.compile(r"(?<!\w)[\"'\u201c\u2018<] ?(\d[^\"'\u201c\u201d\u2018\u2019<>]{0,20}?) ?[\"'\u201d\u2019>]")
"""A time in quotes or angle brackets; the marks of ``1'30"`` are no quotes."""
_UNIT_SECONDS = r"(?:s(?![a-z\d_])|sec(?:ond)?s?(?![a-z\d_])|[秒초])"
_SRT_COMMA = re.compile(r"(?<=\d\d:\d\d:\d\d),(?=\d{3}(?!\d))")
"""Of ``00:00:12,500``."""
_NUMBER_WITH_COMMA = rf"(?<![\d.,:])({DIGITS}),(\d{{1,3}})(?![\d.,:])"
_TIME = rf"(?<!\d)({DIGITS}(?::{DIGITS}){{0,2}}(?!:\d)(?:\.\d++)?|(?<![.\w])\.\d++) ?{_UNIT_SECONDS}?"
_NOT_A_COMMA = r"[-=]{1,2}>|[-~\u2013\u2014\u2192\uff5e到至]|から|부터|에서|\b(?:to|and|until|till|through)\b"
_BETWEEN = rf" ?(?:,|{_NOT_A_COMMA}) ?"
_PAIR = rf"{_TIME}{_BETWEEN}{_TIME}"
_SEGMENT = re.compile(_PAIR, re.IGNORECASE)
_COMMAS_WITHIN = re.compile(
    rf"{_NUMBER_WITH_COMMA}( ?{_UNIT_SECONDS}? ?(?:{_NOT_A_COMMA}) ?){_NUMBER_WITH_COMMA}", re.IGNORECASE
)
"""Of ``13,4 - 28,1`` or ``1,200 to 1,500``: a comma between two numbers of a segment would have no meaning here."""
_FRAMES = re.compile(
    rf"\bframes?(?: numbers?| nos?\.?)? ?\[? ?{DIGITS}{_BETWEEN}{DIGITS}(?!:|\.\d| ?{_UNIT_SECONDS}) ?\]?",
    re.IGNORECASE,
)
"""``frames 402 to 843``: numbers of frames, which are no times."""
_SEGMENT_IN_BRACKETS = re.compile(rf"\[ ?{_PAIR} ?\]", re.IGNORECASE)
_NAMED_ENDS = re.compile(
    rf"(?<![^\W_])(?:start|begin)\w{{0,40}}+\b\D{{0,40}}?{_TIME}\D{{0,60}}?"
    rf"(?<![^\W_])(?:(?:end|stop|finish)\w{{0,40}}+|lasts? (?:until|till|to))\b\D{{0,40}}?{_TIME}",
    re.IGNORECASE,
)
_BESIDE_TIME = re.compile(
    r"\b(?:about|around|approximately|approx\.?|roughly|the|seconds?) (?=[~\u2248]? ?\d)|\bt ?= ?(?=\d)"
    r"|(?<=\d)-(?=seconds?\b)|(?<=[sd]) mark\b"
    rf"|(?<=[\dscd\u79d2\ucd08]) ?\(start\)(?={_BETWEEN}[~\u2248]? ?\d)"
    r"|(?:(?<=\bto )|(?<=\bat )|(?<=\bfrom )|(?<=\band )|(?<=\buntil )|(?<=\bbetween )|(?<=, )|(?<=[\[(,:]))"
    r"[~\u2248] ?(?=\d)",
    re.IGNORECASE,
)
"""Words beside a time that do not change it: ``about 2.5 s``, ``from ~2.5``, ``the 7-second mark``, ``t=2.5``, ``second
7``, ``2.5 (start)``."""
_ONE_IN_BRACKETS = re.compile(rf"\[ ?({_TIME}) ?\]", re.IGNORECASE)
_PLAIN = r"(?<![\d:.])(\d{1,6}(?:\.\d{1,6})?)"
_HOURS, _MINUTES = r"(?:h|hrs?|hours?|小时|時間|시간)(?![a-z])", r"(?:mins?|minutes?|分钟?|분)(?![a-z])"
_SHARED_UNIT = re.compile(rf"{_PLAIN}({_BETWEEN}){_PLAIN}(?= ?\]? ?({_HOURS}|{_MINUTES}))", re.IGNORECASE)
"""The part of "1.5 to 2.5 minutes" before the unit, which belongs to both times."""
_SECONDS = r"(?: ?(?:and )?([0-5]?\d(?:\.\d{1,6})?) ?(?:s|secs?|seconds?|[秒초])(?![a-z]))"
_IN_UNITS = re.compile(
    rf"{_PLAIN} ?{_HOURS}(?: ?(?:and )?(\d{{1,2}}) ?(?:{_MINUTES}|m(?![a-z])))?{_SECONDS}?"
    rf"|{_PLAIN} ?(?:{_MINUTES}{_SECONDS}?|m{_SECONDS})",
    re.IGNORECASE,
)
_UNITS_SECONDS = (3600, 60, 1, 60, 1, 1)
"""The units of the groups of `_IN_UNITS`."""
_WHOLE_VIDEO = re.compile(
    r"\b(?:clip|video|footage|film|recording) (?:\w+ )?(?:lasts?|runs?|spans?|goes|covers) (?:\w+ ){0,2}$",
    re.IGNORECASE,
)
"""Text before a segment that is the duration of the video."""
_WHOLE_VIDEO_CHARACTERS = 60


def read_segment(answer: str | None) -> tuple[float, float] | None:
    """The last segment that an answer names, in seconds; None if it names none.

    Two times are a segment if only a comma, a dash, an arrow, "to", "and", "until" or "through" is between them, also
    in Chinese, Japanese and Korean (``[2.5, 7]``, ``2.5s - 7s``, ``from 0:02 to 0:07``), or if they are named as ends
    (``Start time: 2.5 s. End time: 7 s``, ``starts at 0:02 and ends at 0:07``). Segments in square brackets take
    precedence, because the other text may be about other times. The duration of the video (``the clip lasts from 0 to
    30``) counts only if no other segment is named. Markup and numbers of frames (``frames 402 to 843``) are ignored.
    Minutes and hours are converted: ``1.5 to 2.5 minutes``, ``from 2m10s to 2m30s``. A comma within both numbers is
    one of decimals or of thousands: ``13,4 - 28,1``. A reversed segment overlaps nothing.
    """
    text = _SRT_COMMA.sub(".", " ".join(_QUOTED.sub(r"\1", _MARKUP.sub("", answer or "")).split()))
    text = _FRAMES.sub(" ", _COMMAS_WITHIN.sub(_without_commas, text))
    text = _in_seconds(_ONE_IN_BRACKETS.sub(r"\1", " ".join(_BESIDE_TIME.sub(" ", text).split())))
    matches = list(_SEGMENT_IN_BRACKETS.finditer(text))
    if not matches:
        named = [*_SEGMENT.finditer(text), *_NAMED_ENDS.finditer(text)]
        matches = [match for match in named if not _is_whole_video(match)] or named
    if not matches:
        return None
    start, end = map(clock_seconds, max(matches, key=lambda match: match.end()).groups())
    return None if start is None or end is None else (start, end)


def _without_commas(segment: re.Match[str]) -> str:
    """The two numbers with points: a comma before three digits separates thousands, any other one decimals."""
    start, start_end, between, end, end_end = segment.groups()
    point_of_start, point_of_end = ("" if len(digits) == 3 else "." for digits in (start_end, end_end))
    return f"{start}{point_of_start}{start_end}{between}{end}{point_of_end}{end_end}"


def _in_seconds(text: str) -> str:
    """The text with times in hours and minutes written as seconds."""

    def seconds(match: re.Match[str]) -> str:
        parts = zip(match.groups(), _UNITS_SECONDS, strict=True)
        return f"{sum(float(number) * unit for number, unit in parts if number):.10g} s"

    return _IN_UNITS.sub(seconds, _SHARED_UNIT.sub(r"\1 \4\2\3 \4", text))


def _is_whole_video(segment: re.Match[str]) -> bool:
    start = segment.start()
    return _WHOLE_VIDEO.search(segment.string, max(0, start - _WHOLE_VIDEO_CHARACTERS), start) is not None


def overlap(answer: str | None, truth: str) -> float:
    """Intersection over union of the named segment and the true one (`segment_of`); 0 if the answer names none."""
    named, expected = read_segment(answer), segment_of(truth)
    return 0.0 if named is None or expected is None else temporal_iou(named, expected)


def grade_segment(answer: str, truth: str) -> bool:
    """Whether the overlap is at least `RIGHT_OVERLAP`."""
    return overlap(answer, truth) >= RIGHT_OVERLAP
