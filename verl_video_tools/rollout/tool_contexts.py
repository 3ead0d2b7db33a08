"""`ToolContexts`: what the tools of one rollout may know and ask, with all that they ask noted in its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from verl_video_tools.core.types import (
    CallRecord,
    FrameRequest,
    ImagePart,
    PixelEnvelope,
    Retriever,
    Sample,
    ToolContext,
    ToolModel,
)
from verl_video_tools.rollout.history import History
from verl_video_tools.services.retrieval import RecordingRetriever
from verl_video_tools.services.tool_model import RecordingToolModel, Spent
from verl_video_tools.video import Video, index_at, planned_frames


@dataclass(eq=False)
class ToolContexts:
    """Makes the context of each call.

    Attributes:
        look: decodes frames for a tool.
        deadline_seconds: of a look-up in the video.
        selected_frames: what the retriever answers to a selector is appended.
        history: of the rollout; grows.
    """

    sample: Sample
    envelope: PixelEnvelope
    look: Callable[[FrameRequest], Awaitable[tuple[ImagePart, ...]]]
    deadline_seconds: float
    selected_frames: list[list[int]]
    retriever: Retriever | None = None
    tool_model: ToolModel | None = None
    history: History = field(default_factory=History)
    _spent: Spent = field(default_factory=Spent)

    def of_call(self, videos: Sequence[Video], record: CallRecord) -> ToolContext:
        """For the tool that plans a call; what it asks is noted in the call's record."""
        model = (
            None if self.tool_model is None else RecordingToolModel(self.tool_model, self._spent, record.model_calls)
        )
        return self._context(videos, record.retrieved_frames, model)

    def of_selector(self, video: Video) -> ToolContext:
        """For the selector of the initial frames. It may ask no model: its record has no place for that."""
        return self._context((video,), self.selected_frames, None)

    def _context(self, videos: Sequence[Video], answers: list[list[int]], model: ToolModel | None) -> ToolContext:
        video = videos[0]
        return ToolContext(
            video.info,
            self.sample,
            self.envelope,
            partial(index_at, video, self.deadline_seconds),
            None if self.retriever is None else RecordingRetriever(self.retriever, answers),
            shown=self.history.shown,
            turns=self.history.turns,
            videos=tuple(each.info for each in videos),
            look=self.look,
            model=model,
            times_of=partial(_times_of, video, self.deadline_seconds),
        )


async def _times_of(video: Video, deadline_seconds: float, indices: Sequence[int]) -> list[float]:
    request = FrameRequest(width=1, height=1, indices=tuple(indices))
    return [record.timestamp_seconds for record in await planned_frames(video, request, deadline_seconds)]
