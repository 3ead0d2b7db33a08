"""What a tool is, what it may know of its rollout, and who may choose the frames shown with the question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from verl_video_tools.core.frames import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.services import Retriever
from verl_video_tools.core.trajectory import ToolPlan


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


class Tool(Protocol):
    """What the environment can do. One file per tool in `tools/`."""

    name: ClassVar[str]

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Check the arguments and say what would be shown.

        Raises:
            CallRejected: the call cannot be carried out; the code says why.
        """
        ...


class FrameSelector(Protocol):
    """Chooses the frames that are shown with the question in a method's place: a field `first_look_selector`."""

    async def __call__(self, look: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
        """Other frames than the method's `look`, at its size and no more of them.

        Raises:
            RetrievalError: they could not be searched.
            VideoError: they cannot be decoded.
        """
        ...
