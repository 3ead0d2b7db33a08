"""Tools that answer in words: the reply of another model about frames, and subtitles of a row by time and by words.

Which model is asked, and how much of it a rollout may ask, is the run's configuration (docs/tools.md). The policy is
shown the reply alone, not the frames. A row holds its subtitles itself (`extra_info.subtitles`); it names no file of
them.
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
from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError
from verl_video_tools.core.types import (
    Content,
    FrameRequest,
    ImagePart,
    ModelReply,
    PixelEnvelope,
    Subtitle,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.calls import span_argument, time_argument, video_argument
from verl_video_tools.methods.toolkit.frames import frame_lines, frame_size
from verl_video_tools.video.sampling import uniform_seconds

CUT_MARK = " [...]"
"""Stands where a reply was cut."""


@dataclass(frozen=True, kw_only=True)
class AskModel:
    """Asks the run's tool model about frames, and answers with its words.

    Attributes:
        num_frames: of a span, spread evenly, both ends included; a moment is one frame.
        min_pixels, max_pixels: area of a frame as that model gets it. Its processor is not the policy's.
        question: asked in every call, which then has none of its own: so the tool is a captioner, or reads text.
        max_question_characters: of a call's own question.
        max_characters: of the reply, of which more is cut.
        deadline_seconds: for the reply. The endpoint's own deadline holds beside it.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "ask_model"
    asks_model: ClassVar[bool] = True
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name,
        description=(
            "Lets another model look at a moment or a part of the video, and answer a question about it in words. "
            "Give time, or start_time and end_time."
        ),
        parameters={
            "question": ("string", "What to find out there."),
            "time": ("number", "A moment, in seconds from the start of the video."),
            "start_time": ("number", "Where a part starts, in seconds."),
            "end_time": ("number", "Where it ends, in seconds; not before start_time, within the video."),
            "video": ("integer", "Number of the video, from 1, where the question is about several."),
        },
        optional=("time", "start_time", "end_time", "video"),
    )

    num_frames: int = 8
    min_pixels: int = 28 * 28
    max_pixels: int = 448 * 448
    question: str | None = None
    max_question_characters: int = 1_000
    max_characters: int = 4_000
    deadline_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name in ("num_frames", "min_pixels", "max_question_characters", "max_characters"):
            require(self, name, getattr(self, name) >= 1, "at least 1")
        require(self, "max_pixels", self.max_pixels >= self.min_pixels, f"at least min_pixels, {self.min_pixels}")
        require(self, "question", self.question is None or bool(self.question.strip()), "some text, or null")
        require(self, "deadline_seconds", self.deadline_seconds > 0.0, "above 0")

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """The reply to ``{"question": text, "time": seconds}`` or, for a span, ``start_time`` and ``end_time``.

        The result is ``{"model": str, "num_frames": int, "cut": bool}``. What was asked and replied is in the call's
        record (`CallRecord.model_calls`).

        Raises:
            CallRejected: `malformed_call`, `wrong_video`, `reversed_segment` or `out_of_range`; `model_budget` where
                the rollout has asked all that it may; `no_reply` where the model gave none that can be used.
            ToolModelError: there is no model, or it is not there.
            VideoError: the frames cannot be decoded.
        """
        question = self._question(arguments)
        video, info = video_argument(arguments, context)
        seconds = self._seconds(arguments, info)
        if context.model is None or context.look is None:
            raise ToolModelError("the tool asks a model, and the run has none")
        width, height = frame_size(info, self.min_pixels, self.max_pixels, PixelEnvelope())
        request = FrameRequest(width=width, height=height, seconds=seconds, unique=True, video=video)
        images = await context.look(request)
        reply = await context.model.ask(_content(images, question), self.deadline_seconds)
        text, cut = self._shown(reply)
        return ToolPlan(text=text, result={"model": reply.model, "num_frames": len(images), "cut": cut})

    def _question(self, arguments: Mapping[str, Any]) -> str:
        if self.question is not None:
            return self.question
        question = arguments.get("question")
        if not isinstance(question, str) or not 0 < len(question.strip()) <= self.max_question_characters:
            raise CallRejected(
                CallErrorCode.MALFORMED_CALL,
                f"question must be a text of 1 to {self.max_question_characters} characters, got {question!r:.80}",
            )
        return question.strip()

    def _seconds(self, arguments: Mapping[str, Any], info: VideoInfo) -> tuple[float, ...]:
        """Times to look at. None stands for an argument that is left out, as some models write it."""
        present = {name for name in ("time", "start_time", "end_time") if arguments.get(name) is not None}
        if present == {"start_time", "end_time"}:
            start, end = span_argument(arguments, info.duration_seconds)
            return uniform_seconds(start, end, self.num_frames) if end > start else (start,)
        if present != {"time"}:
            raise CallRejected(
                CallErrorCode.MALFORMED_CALL,
                f"give time, or start_time and end_time; got {', '.join(sorted(present)) or 'none of them'}",
            )
        return (time_argument(arguments, "time", info),)

    def _shown(self, reply: ModelReply) -> tuple[str, bool]:
        text = reply.text[: self.max_characters]
        cut = reply.cut or len(reply.text) > self.max_characters
        return (text + CUT_MARK if cut else text), cut


def _content(images: tuple[ImagePart, ...], question: str) -> Content:
    return (*frame_lines(images, lambda seconds: f"[{seconds:.1f} s]"), f"\n\n{question}")


# ------------------------------------------------------------------------------------------------------------ subtitles


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
    captions = [
        subtitle
        for subtitle in subtitles
        if subtitle.start_seconds <= end_seconds
        and (subtitle.end_seconds > start_seconds or subtitle.start_seconds >= start_seconds)
    ]
    return sorted(captions, key=lambda subtitle: subtitle.start_seconds)


def captions_with(subtitles: Sequence[Subtitle], words: str, max_captions: int) -> tuple[list[Subtitle], int]:
    """Those that say the words, and how many there are in all; of more than `max_captions` the best, by their starts.

    Case does not count. A caption is found if it holds one of the words, or all that is looked for as a part of its
    text, as in languages without spaces. It is the better, the rarer the words that it holds (inverse document
    frequency); one that holds the whole text is better than any other, and of equals the earlier one is.
    """
    query = " ".join(words.casefold().split())
    query_words = set(_WORD.findall(query))
    said = [subtitle.text.casefold() for subtitle in subtitles]
    held = [query_words.intersection(_WORD.findall(text)) for text in said]
    num_holding = Counter(word for captions in held for word in captions)
    weights = {word: math.log(1.0 + len(subtitles) / num_holding[word]) for word in num_holding}
    whole = 1.0 + sum(weights.values())
    scores = [
        whole if query and query in " ".join(text.split()) else math.fsum(weights[word] for word in captions)
        for text, captions in zip(said, held, strict=True)
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
        captions = captions_between(_subtitles(context), start, end)
        if not captions:
            raise CallRejected(CallErrorCode.NOTHING_FOUND, f"there is no subtitle from {start:g} to {end:g} seconds")
        lines = caption_lines(captions, len(captions), self.max_characters)
        counts = {"num_captions": len(captions), "num_shown": lines.num_shown}
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
