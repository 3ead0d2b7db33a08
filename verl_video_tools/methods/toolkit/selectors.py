"""Selectors of the frames shown with the question, named by Python path in a method's field
`initial_frames_selector`."""

from __future__ import annotations

from dataclasses import replace

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import FrameRequest, ToolContext
from verl_video_tools.video.sampling import linspace_indices

NUM_CANDIDATES = 256
"""Frames spread over the video that `most_similar` compares with the question."""


async def most_similar(request: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    """The frames most like the question, in order of time; as many as the method would show.

    Raises:
        RetrievalError: the run has no retriever (docs/retrieval.md), or it gave no answer.
    """
    if context.retriever is None:
        raise RetrievalError("the selector most_similar needs a retriever, and the run has none")
    last = context.info.num_frames - 1
    candidates = linspace_indices(0, last, max(NUM_CANDIDATES, request.num_frames))
    best = await context.retriever.best_frames(
        context.sample.video_path, candidates, context.sample.question, request.num_frames, deadline_seconds
    )
    return replace(request, seconds=None, indices=tuple(sorted(best)))
