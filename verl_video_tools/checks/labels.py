"""Whether the numbers that stand beside frames are true of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_video_tools.core.types import Content, FrameRecord, ImagePart

_NUMBER = re.compile(r"\d+:\d{2}(?::\d{2})?|\d+\.\d+|\d+")
_LABEL_CHARACTERS = 40


def false_label(content: Content) -> str | None:
    """The first label with a number, none of which is true of its frame; None where all are.

    A frame's label is what stands on its line before it. True are its time (to the decimals written, or as a clock),
    its index, and its place among the frames shown, from 0 or 1. Where a decimal number or a clock is written, one has
    to be the time.
    """
    for place, (label, record) in enumerate(_labelled(content)):
        numbers = _NUMBER.findall(label)
        times = [number for number in numbers if "." in number or ":" in number]
        if times and not any(_is_time(number, record.timestamp_seconds) for number in times):
            return f"{label!r} beside the frame at {record.timestamp_seconds:g} s"
        if numbers and not times and not any(_is_true(int(number), place, record) for number in numbers):
            return f"{label!r} beside frame {record.index} at {record.timestamp_seconds:g} s"
    return None


def _labelled(content: Content) -> Iterator[tuple[str, FrameRecord]]:
    before = ""
    for part in content:
        if isinstance(part, ImagePart):
            yield before.rsplit("\n", 1)[-1][-_LABEL_CHARACTERS:], part.record
            before = ""
        else:
            before += part


def _is_time(text: str, seconds: float) -> bool:
    if ":" in text:
        told = 0.0
        for digits in text.split(":"):
            told = told * 60 + int(digits)
        return abs(told - seconds) <= 1.0
    step = 10.0 ** -len(text.partition(".")[2])
    return abs(float(text) - seconds) <= 0.5 * step + 1e-6


def _is_true(number: int, place: int, record: FrameRecord) -> bool:
    return number in (place, place + 1, record.index) or abs(number - record.timestamp_seconds) <= 1.0
