"""What is said in the video, as text: the row's subtitles by time, and by words.

A row holds its subtitles itself (`extra_info.subtitles`); it names no file of them.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import Subtitle, ToolContext, ToolDescription, ToolPlan
from verl_video_tools.methods.toolkit.calls import span_argument

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


MAX_WORDS_CHARACTERS = 200
"""Of a search. A longer one is no search for words but a text that the policy rambles on."""


@dataclass(frozen=True, kw_only=True)
class SubtitlesAt:
    """Tells the captions that are on screen in a span of time, each with its times. Shows no image.

    Attributes:
        max_characters: of the answer; of more captions it says how many are left out.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "subtitles_at"
    reads_subtitles: ClassVar[bool] = True
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name,
        description="Tells what is said in a part of the video: its subtitles, each with its times in seconds.",
        parameters={
            "start_time": ("number", "Where the part starts, in seconds from the start of the video."),
            "end_time": ("number", "Where the part ends, in seconds; not before start_time, within the video."),
        },
    )

    max_characters: int = 4_000

    def __post_init__(self) -> None:
        require(self, "max_characters", self.max_characters >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Captions for ``{"start_time": seconds, "end_time": seconds}``; equal times ask for a moment.

        The result is ``{"span_seconds": [start, end], "num_captions": int, "num_shown": int}``.

        Raises:
            CallRejected: `malformed_call`, `reversed_segment`, `out_of_range`, `no_subtitles`, or `nothing_found` where
                nothing is said in the span.
        """
        start, end = span_argument(arguments, context.info.duration_seconds)
        found = captions_between(_subtitles(context), start, end)
        if not found:
            raise CallRejected(CallErrorCode.NOTHING_FOUND, f"there is no subtitle from {start:g} to {end:g} seconds")
        lines = caption_lines(found, len(found), self.max_characters)
        counts = {"num_captions": len(found), "num_shown": lines.num_shown}
        return ToolPlan(text=lines.text, result={"span_seconds": [start, end], **counts})


@dataclass(frozen=True, kw_only=True)
class SubtitleSearch:
    """Finds the captions that hold given words, each with its times, in order of time. Shows no image.

    Which ones are the best is said in `captions_with`: words are compared as they stand, no model is asked.

    Attributes:
        max_captions: told by one call; of more it says how many are left out.
        max_characters: of the answer.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "search_subtitles"
    reads_subtitles: ClassVar[bool] = True
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name,
        description="Finds where something is said: the subtitles that hold the given words, with times in seconds.",
        parameters={"words": ("string", "One or more words that are said there.")},
    )

    max_captions: int = 8
    max_characters: int = 4_000

    def __post_init__(self) -> None:
        for name in ("max_captions", "max_characters"):
            require(self, name, getattr(self, name) >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Captions for ``{"words": text}``.

        The result is ``{"num_captions": int, "num_shown": int, "times_seconds": [[start, end], ...]}``, the times of
        the captions that are shown.

        Raises:
            CallRejected: `malformed_call`, `no_subtitles`, or `nothing_found` where no caption holds any of the words.
        """
        words = arguments.get("words")
        if not isinstance(words, str) or not words.strip() or len(words) > MAX_WORDS_CHARACTERS:
            raise CallRejected(
                CallErrorCode.MALFORMED_CALL,
                f"words must be a text of 1 to {MAX_WORDS_CHARACTERS} characters, got {words!r:.80}",
            )
        # An hour has more than a thousand captions: milliseconds that the loop of all rollouts would wait for.
        best, num_found = await asyncio.to_thread(captions_with, _subtitles(context), words, self.max_captions)
        if not best:
            raise CallRejected(CallErrorCode.NOTHING_FOUND, f"no subtitle holds {words.strip()!r:.80}; try other words")
        lines = caption_lines(best, num_found, self.max_characters)
        times = [[caption.start_seconds, caption.end_seconds] for caption in best[: lines.num_shown]]
        counts = {"num_captions": num_found, "num_shown": lines.num_shown}
        return ToolPlan(text=lines.text, result={**counts, "times_seconds": times})


def _subtitles(context: ToolContext) -> tuple[Subtitle, ...]:
    if not context.sample.subtitles:
        raise CallRejected(CallErrorCode.NO_SUBTITLES, "this video has no subtitles")
    return context.sample.subtitles
