"""Tools, what a tool knows of its rollout, and selectors of initial frames."""

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
        index: number of the frame, in presentation order of its video; -1 for a picture that a tool has made.
        timestamp_seconds: presentation time of the frame, as its decoder reported it.
        turn: 0 for the initial frames, n for frames that answered the n-th assistant turn.
        region: the part of the displayed frame that was shown; None if the whole frame was shown.
        video: number of the video in a row with several, from 0.
    """

    index: int
    timestamp_seconds: float
    turn: int
    region: PixelBox | None = None
    video: int = 0


@dataclass(frozen=True)
class ToolContext:
    """What a tool knows when it plans a call: the video of the row and the limits, but never a path from the model."""

    info: VideoInfo
    sample: Sample
    envelope: PixelEnvelope
    index_at: Callable[[float], Awaitable[int]]
    """Await the index of the frame shown at a time in seconds (0 <= t <= duration). Raises VideoError."""
    retriever: Retriever | None = None
    """Finds frames by text; None if the run has no retriever."""
    previous_frames: tuple[ShownFrame, ...] = ()
    """Every image of the rollout before this call, the initial frames first. Empty for a selector of initial frames,
    and in verl's own tool loop, which does not pass them to its tools."""
    videos: tuple[VideoInfo, ...] = ()
    """Facts of all videos of the row, `info` first. A `FrameRequest` names a video by its position in this tuple. The
    other fields are about the first video. Empty in verl's own tool loop, which has one video."""
    decode: Callable[[FrameRequest], Awaitable[tuple[ImagePart, ...]]] | None = None
    """Decodes frames for the tool itself; the policy does not see them. Raises VideoError."""
    model: ToolModel | None = None
    """A model that the tool may ask, within the limits of the rollout; None if the run has no such model."""
    times_of: Callable[[Sequence[int]], Awaitable[Sequence[float]]] | None = None
    """Await the presentation times in seconds of frames with these numbers. Raises VideoError. None in verl's own tool
    loop."""

    async def range_seconds(self, first: int, last: int) -> dict[str, float]:
        """`start_time` and `end_time` for the result of a call that shows the frames `first` to `last`: the times at
        which these two frames begin, in seconds. The times come from the file and not from a frame rate. Empty if
        `times_of` is None.

        Raises:
            VideoError: the file cannot be read.
        """
        if self.times_of is None:
            return {}
        return dict(zip(("start_time", "end_time"), await self.times_of((first, last)), strict=True))


class Tool(Protocol):
    """An action that the policy can call."""

    name: ClassVar[str]

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Check the arguments of a call and return what it shows.

        Raises:
            CallRejected: the call cannot be executed; the code says why.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ToolDescription:
    """How a tool is offered to a model by verl's own tool loop, and how its result is reported there.

    Attributes:
        name: name of the tool, for the model and in `tools_kwargs` of a row.
        parameters: JSON type and description of each parameter. The description of an array must say what its entries
            are, because verl's schema drops nested types.
        optional: parameters that a call may leave out.
        frame_label: format of the label of an image, from its `FrameRecord`. verl's loop puts the images before all
            text, so the text has to name them.
        result_text: makes the text of a result from the arguments and the result of a call, for a tool that shows no
            frames.
    """

    name: str
    description: str
    parameters: Mapping[str, tuple[str, str]]
    optional: tuple[str, ...] = ()
    frame_label: str = "{frame.timestamp_seconds:.2f} s"
    result_text: Callable[[Mapping[str, Any], Mapping[str, Any]], str] | None = None


class FrameSelector(Protocol):
    """Chooses the initial frames instead of the method; named by the field `initial_frames_selector`."""

    async def __call__(self, request: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
        """The initial frames to show instead of the method's `request`: at the same size, and at most as many.

        Raises:
            RetrievalError: the frames could not be searched.
            VideoError: the frames cannot be decoded.
        """
        ...


SELECTORS = {"most_similar": "verl_video_tools.methods.toolkit.frames:most_similar"}


def load_selector(name: str) -> FrameSelector:
    """The selector of a registered name, or at a Python path such as `package.module:function`.

    Raises:
        UsageError: there is no such selector.
    """
    selector: FrameSelector = resolve(name, SELECTORS, "initial_frames_selector")
    if not callable(selector):
        raise UsageError(f"the initial_frames_selector {name!r} must be a function, got {selector!r:.80}")
    return selector
