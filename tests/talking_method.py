"""A method with tools that answer in words, and what its policy says: LongVT's loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import Sample, Subtitle, Tool, ToolContext, ToolDescription, ToolPlan, VideoInfo
from verl_video_tools.methods.longvt import LongVT

QUESTION = "What does she say?"
SUBTITLES = (
    Subtitle(1.0, 2.0, "Good morning."),
    Subtitle(10.0, 12.0, "The red kettle is hot."),
    Subtitle(20.0, 21.5, "Take the kettle off."),
)
ANSWER = "<think>heard</think><answer>B</answer>"


@dataclass
class Spy:
    """Remembers the contexts of its calls, and answers in words, with the frames of a plan where it has one."""

    contexts: list[ToolContext]
    text: str | None = "seen"

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        self.contexts.append(context)
        return ToolPlan(text=self.text, result={"given": dict(arguments)})


class SubtitleSearch:
    """The row's captions that hold the words."""

    name: ClassVar[str] = "search_subtitles"
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name, description="Finds what is said.", parameters={"words": ("string", "Words that are said.")}
    )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        lines = [
            f"[{subtitle.start_seconds:.1f}-{subtitle.end_seconds:.1f} s] {subtitle.text}"
            for subtitle in context.sample.subtitles
            if arguments["words"] in subtitle.text
        ]
        if not lines:
            raise CallRejected(CallErrorCode.NOTHING_FOUND, "no subtitle holds the words")
        return ToolPlan(text="\n".join(lines), result={"num_captions": len(lines)})


@dataclass(frozen=True, kw_only=True)
class Talking(LongVT):
    """LongVT with a tool that answers in words, and further ones of a test."""

    name: ClassVar[str] = "talking"
    more: ClassVar[dict[str, Tool]] = {}

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        return {
            **super().tools(info),
            SubtitleSearch.name: SubtitleSearch(),
            **self.more,
        }


def call(name: str, **arguments: Any) -> str:
    return f"<think>look</think><tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def calls(*texts: str) -> str:
    """Turns of one call each as one turn."""
    return "<think>look</think>" + "".join(text.removeprefix("<think>look</think>") for text in texts)


def sample(video: str, subtitles: tuple[Subtitle, ...] = SUBTITLES) -> Sample:
    return Sample(QUESTION, "B", video, "mc", ("a hat", "a scarf"), subtitles=subtitles)
