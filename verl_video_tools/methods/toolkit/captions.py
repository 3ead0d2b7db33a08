"""Captions by time and by words, and as lines of text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from verl_video_tools.core.types import Subtitle

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class CaptionLines:
    """Captions as a model reads them, a line each.

    Attributes:
        text: the lines, and where some are left out a last one that says how many.
        num_shown: captions whose lines stand in the text whole.
    """

    text: str
    num_shown: int


def captions_between(subtitles: Sequence[Subtitle], start_seconds: float, end_seconds: float) -> list[Subtitle]:
    """Those that are on screen at some time from start to end, both included, by their starts.

    One is on screen from its start on, and no more at its end.
    """
    found = [
        subtitle
        for subtitle in subtitles
        if subtitle.start_seconds <= end_seconds
        and (subtitle.end_seconds > start_seconds or subtitle.start_seconds >= start_seconds)
    ]
    return sorted(found, key=lambda subtitle: subtitle.start_seconds)


def captions_with(subtitles: Sequence[Subtitle], words: str, max_captions: int) -> tuple[list[Subtitle], int]:
    """Those that say the words, and how many there are in all; of more than `max_captions` the best, by their starts.

    Case does not count. A caption is found if it holds one of the words, or all that is looked for as a part of its
    text, as in languages without spaces. It is the better, the rarer the words that it holds (inverse document
    frequency); one that holds the whole text is better than any other, and of equals the earlier one is.
    """
    wanted_text = " ".join(words.casefold().split())
    wanted = set(_WORD.findall(wanted_text))
    said = [subtitle.text.casefold() for subtitle in subtitles]
    held = [wanted.intersection(_WORD.findall(text)) for text in said]
    num_holding = Counter(word for found in held for word in found)
    weights = {word: math.log(1.0 + len(subtitles) / num_holding[word]) for word in num_holding}
    whole = 1.0 + sum(weights.values())
    scores = [
        whole if wanted_text and wanted_text in " ".join(text.split()) else math.fsum(weights[word] for word in found)
        for text, found in zip(said, held, strict=True)
    ]
    hits = [number for number, score in enumerate(scores) if score > 0.0]
    hits.sort(key=lambda number: (-scores[number], subtitles[number].start_seconds))
    best = sorted((subtitles[number] for number in hits[:max_captions]), key=lambda subtitle: subtitle.start_seconds)
    return best, len(hits)


def caption_lines(captions: Sequence[Subtitle], num_found: int, max_characters: int) -> CaptionLines:
    """Captions with their times in seconds, in the order given, within a bound.

    Args:
        num_found: how many there are with those that are not given.
        max_characters: of all lines; of a first caption that is longer, its beginning is shown.
    """
    lines: list[str] = []
    length = 0
    for caption in captions:
        words = " ".join(caption.text.split())
        line = f"[{caption.start_seconds:.1f}-{caption.end_seconds:.1f} s] {words}"
        if length + len(line) > max_characters:
            break
        lines.append(line)
        length += len(line) + 1
    num_shown = len(lines)
    if captions and not lines:
        first = captions[0]
        words = " ".join(first.text.split())
        lines = [f"[{first.start_seconds:.1f}-{first.end_seconds:.1f} s] {words}"[:max_characters] + " [...]"]
    if (num_left_out := num_found - max(num_shown, len(lines))) > 0:
        lines.append(f"{num_left_out} more not shown")
    return CaptionLines("\n".join(lines), num_shown)
