"""Tools of no paper: a part of a frame at full size, and words of another model about frames.

Which model `AskModel` asks, and how much of it a rollout may ask, is the run's configuration (docs/tools.md). The
policy is shown the reply alone, not the frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from verl_video_tools.core.config import require, require_at_least
from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError
from verl_video_tools.core.types import (
    Box,
    BoxUnit,
    FrameRequest,
    PixelBox,
    PixelEnvelope,
    Region,
    ShownFrame,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.calls import (
    box_in_words,
    region_argument,
    span_argument,
    time_argument,
    video_argument,
)
from verl_video_tools.methods.toolkit.frames import frame_lines, frame_size, pixel_bounds
from verl_video_tools.video.resize import MAX_ASPECT_RATIO, fit_envelope
from verl_video_tools.video.sampling import uniform_seconds

MIN_PICTURE_PIXELS = 1024
"""One cell of the largest factor of the supported models. A picture has at least this many pixels."""

_PARAMETERS = {
    "time": ("number", "Time of the frame in seconds, within the video."),
    "frame": (
        "integer",
        "Which of the pictures shown so far, counted from 0 over all of them in the order shown. The box is of that "
        "picture.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Zoom:
    """Shows a part of one frame, from the pixels of the video and not from a picture that was shown before.

    Attributes:
        frame_by: how a call names the frame. With `time` it has the argument `time` in seconds. With `frame` it has the
            argument `frame`, the position of a picture among all that the model was shown, from 0. If this picture is a
            part of a frame, the box is relative to the part, except in the unit `pixels`, which always means pixels of
            the video.
        unit: unit of the numbers of a box. Qwen3-VL writes `thousandths` by itself.
        max_pixels: largest area of the picture. A larger region is shrunk and keeps its shape.
        min_pixels: a smaller region is enlarged to this area and keeps its shape. The model then sees larger letters,
            but no more detail. 1 enlarges nothing beyond the model's own minimum.
        min_side_pixels: a region with a side of fewer pixels of the video is refused.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "zoom"

    frame_by: Literal["time", "frame"] = "time"
    unit: BoxUnit = "normalised"
    max_pixels: int = 200_704
    min_pixels: int = 50_176
    min_side_pixels: int = 28

    def __post_init__(self) -> None:
        require(self, "max_pixels", self.max_pixels >= MIN_PICTURE_PIXELS, f"at least {MIN_PICTURE_PIXELS}")
        require(self, "min_pixels", 1 <= self.min_pixels <= self.max_pixels, f"from 1 to max_pixels, {self.max_pixels}")
        require_at_least(self, 1, "min_side_pixels")

    @property
    def description(self) -> ToolDescription:
        """The description of the tool for a model."""
        return ToolDescription(
            name=self.name,
            description=(
                "Look closer at a part of one frame: shows what is in a box, from the video at full resolution. "
                "Use it for text and things too small to make out."
            ),
            parameters={
                self.frame_by: _PARAMETERS[self.frame_by],
                "box": ("array", box_in_words(self.unit)),
            },
        )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """One picture for ``{"time": seconds, "box": [left, top, right, bottom]}``, or for ``{"frame": position,
        ...}``.

        The result is ``{"box": [...]}`` in whole pixels of the displayed frame.

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `unknown_frame`, `reversed_box`, `box_outside` or
                `box_too_small`.
        """
        named = self._named_frame(arguments, context)
        info = context.videos[named.video] if isinstance(named, ShownFrame) and context.videos else context.info
        part = named.region if isinstance(named, ShownFrame) and self.unit != "pixels" else None
        size = (info.width, info.height) if part is None else (part.width, part.height)
        region, pixels = region_argument(arguments, "box", size, self.unit, self.min_side_pixels)
        if part is not None:
            left, top = part.left, part.top
            pixels = PixelBox(pixels.left + left, pixels.top + top, pixels.right + left, pixels.bottom + top)
            region = Region(Box(*pixels))
        bounds = pixel_bounds(self.min_pixels, self.max_pixels, context.envelope)
        size = fit_envelope(pixels.width, pixels.height, bounds)
        if isinstance(named, ShownFrame):
            request = FrameRequest(*size, indices=(named.index,), region=region, video=named.video)
        else:
            request = FrameRequest(*size, seconds=(named,), region=region)
        return ToolPlan(frames=request, result={"box": list(pixels)})

    def most_expensive_call(self, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        """A picture that costs at least as many tokens as that of any call."""
        bounds = pixel_bounds(self.min_pixels, self.max_pixels, envelope)
        columns, rows = _most_cells(bounds.max_pixels // bounds.factor**2)
        return FrameRequest(columns * bounds.factor, rows * bounds.factor, seconds=(0.0,))

    def _named_frame(self, arguments: Mapping[str, Any], context: ToolContext) -> ShownFrame | float:
        """The picture that a call names, or the time in seconds.

        Raises:
            CallRejected: see `plan`.
        """
        if self.frame_by == "time":
            return time_argument(arguments, "time", context.info)
        position = arguments.get("frame")
        if isinstance(position, bool) or not isinstance(position, int):
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"frame must be a whole number, got {position!r:.80}")
        frames = context.previous_frames
        if not 0 <= position < len(frames):
            positions = f"pictures run from 0 to {len(frames) - 1}" if frames else "none was shown"
            raise CallRejected(CallErrorCode.UNKNOWN_FRAME, f"there is no picture {position!s:.80}; {positions}")
        if frames[position].index < 0:
            raise CallRejected(CallErrorCode.UNKNOWN_FRAME, f"picture {position} is no frame of the video")
        return frames[position]


def _most_cells(limit: int) -> tuple[int, int]:
    """Columns and rows of the largest grid of at most `limit` cells that a processor takes, the squarest of these."""
    grids = ((limit // rows, rows) for rows in range(math.isqrt(limit), 0, -1))
    return max((grid for grid in grids if grid[0] <= MAX_ASPECT_RATIO * grid[1]), key=lambda grid: grid[0] * grid[1])


CUT_MARK = " [...]"
"""End of a reply that was cut."""


@dataclass(frozen=True, kw_only=True)
class AskModel:
    """Asks the tool model of the run about frames, and returns its reply.

    Attributes:
        num_frames: number of frames of a span, spread evenly, both ends included. A moment is one frame.
        min_pixels, max_pixels: area of a frame for the tool model, whose processor is not the policy's.
        question: the question of every call. A call then has no question of its own, so that the tool is a captioner or
            reads text.
        max_question_characters: largest length of the question of a call.
        max_characters: largest length of the reply; a longer reply is cut.
        deadline_seconds: time for the reply. The deadline of the endpoint applies, too.

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
        require_at_least(self, 1, "num_frames", "min_pixels", "max_question_characters", "max_characters")
        require(self, "max_pixels", self.max_pixels >= self.min_pixels, f"at least min_pixels, {self.min_pixels}")
        require(self, "question", self.question is None or bool(self.question.strip()), "some text, or null")
        require(self, "deadline_seconds", self.deadline_seconds > 0.0, "above 0")

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """The reply to ``{"question": text, "time": seconds}`` or, for a span, ``start_time`` and ``end_time``.

        The result is ``{"model": str, "num_frames": int, "cut": bool}``. The record of the call has the request and the
        reply (`CallRecord.model_calls`).

        Raises:
            CallRejected: `malformed_call`, `wrong_video`, `reversed_segment` or `out_of_range`; `model_budget` if the
                rollout has made all requests that it may; `no_reply` if the model gave no usable reply.
            ToolModelError: there is no model, or it cannot be reached.
            VideoError: the frames cannot be decoded.
        """
        question = self._question(arguments)
        video, info = video_argument(arguments, context)
        seconds = self._seconds(arguments, info)
        if context.model is None or context.decode is None:
            raise ToolModelError("the tool asks a model, and the run has none")
        size = frame_size(info, self.min_pixels, self.max_pixels, PixelEnvelope())
        request = FrameRequest(*size, seconds=seconds, unique=True, video=video)
        images = await context.decode(request)
        frames = frame_lines(images, lambda seconds: f"[{seconds:.1f} s]")
        reply = await context.model.ask((*frames, f"\n\n{question}"), self.deadline_seconds)
        cut = reply.cut or len(reply.text) > self.max_characters
        text = reply.text[: self.max_characters] + (CUT_MARK if cut else "")
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
