"""What a tool is, what it may know of its rollout, and who may choose the frames shown with the question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.frames import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.core.messages import ImagePart
from verl_video_tools.core.regions import PixelBox
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.services import Retriever, ToolModel
from verl_video_tools.core.trajectory import ToolPlan


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """One image that the model was shown.

    Attributes:
        index: number of the frame, in presentation order of its video.
        timestamp_seconds: of the frame, as its decoder reported it.
        turn: 0 for the frames shown with the question, n for those that answered the n-th assistant turn.
        region: the part of the displayed frame that was shown; None where all of it was.
        video: which of several videos of the row it is from, from 0.
    """

    index: int
    timestamp_seconds: float
    turn: int
    region: PixelBox | None = None
    video: int = 0


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know when it plans a call: the bound video and the limits, never a path from the model."""

    info: VideoInfo
    sample: Sample
    envelope: PixelEnvelope
    index_at: Callable[[float], Awaitable[int]]
    """Await the index of the frame shown at a time in seconds (0 <= t <= duration). Raises VideoError."""
    retriever: Retriever | None = None
    """Finds frames by text; None where the run has none."""
    previous_frames: tuple[ShownFrame, ...] = ()
    """Every image of the rollout before this call, the initial frames first. Empty for a selector of initial frames,
    and in verl's own tool loop, which does not pass them to its tools."""
    videos: tuple[VideoInfo, ...] = ()
    """Facts of all videos of the row, `info` first; a `FrameRequest` names one by its place here. Other fields are
    about the first. Empty in verl's own tool loop, which binds one."""
    decode: Callable[[FrameRequest], Awaitable[tuple[ImagePart, ...]]] | None = None
    """Decodes frames for the tool itself, which the policy is not shown. Raises VideoError."""
    model: ToolModel | None = None
    """A model that the tool may ask, within the rollout's limits; None where the run has none."""
    times_of: Callable[[Sequence[int]], Awaitable[Sequence[float]]] | None = None
    """Await the times in seconds of frames by their numbers. Raises VideoError. None in verl's own tool loop."""

    async def range_seconds(self, first: int, last: int) -> dict[str, float]:
        """What a call's result says of the frames `first` to `last`, both included, so that its times are never
        computed from a rate: `start_time` and `end_time`, when the first and the last of them begin. Empty where
        `times_of` is None.

        Raises:
            VideoError: the file cannot be asked.
        """
        if self.times_of is None:
            return {}
        return dict(zip(("start_time", "end_time"), await self.times_of((first, last)), strict=True))


class Tool(Protocol):
    """An action that the policy can call."""

    name: ClassVar[str]

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Check the arguments and say what would be shown.

        Raises:
            CallRejected: the call cannot be carried out; the code says why.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ToolDescription:
    """How a tool is offered to a model by verl's own tool loop, and how its result is reported there.

    Attributes:
        name: the tool's, for the model and in a row's `tools_kwargs`.
        parameters: JSON type and description of each. The description of an array must say what it holds, since verl's
            schema drops nested types.
        optional: parameters that a call may leave out.
        frame_label: how the text names an image, which verl's loop puts before all text; a format of its
            `FrameRecord`.
        result_text: the text of a call's arguments and result, for a tool that shows no frames.
    """

    name: str
    description: str
    parameters: Mapping[str, tuple[str, str]]
    optional: tuple[str, ...] = ()
    frame_label: str = "{frame.timestamp_seconds:.2f} s"
    result_text: Callable[[Mapping[str, Any], Mapping[str, Any]], str] | None = None


class FrameSelector(Protocol):
    """Chooses the frames that are shown with the question in a method's place: a field `initial_frames_selector`."""

    async def __call__(self, request: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
        """Other frames than the method's `request`, at its size and no more of them.

        Raises:
            RetrievalError: they could not be searched.
            VideoError: they cannot be decoded.
        """
        ...


SELECTORS = {"most_similar": "verl_video_tools.methods.toolkit.frames:most_similar"}


def load_selector(name: str) -> FrameSelector:
    """The selector of a registered name, or at a Python path such as `package.module:function`.

    Raises:
        UsageError: there is none.
    """
    selector: FrameSelector = resolve(name, SELECTORS, "initial_frames_selector")
    if not callable(selector):
        raise UsageError(f"the initial_frames_selector {name!r} must be a function, got {selector!r:.80}")
    return selector
