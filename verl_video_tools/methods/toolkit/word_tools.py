"""A tool that asks another model about frames, and answers with its words.

Which model is asked, and how much of it a rollout may ask, is the run's configuration (docs/tools.md). The policy is
shown the reply alone, not the frames.
"""

from __future__ import annotations

from collections.abc import Mapping
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
