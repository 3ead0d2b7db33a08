"""`ToolContext.index_at` without a video."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from verl_video_tools.synthetic.world import VideoSpec, frames_at


def awaited(index_of: Callable[[float], int]) -> Callable[[float], Awaitable[int]]:
    async def index_at(seconds: float) -> int:
        return index_of(seconds)

    return index_at


def index_in(spec: VideoSpec) -> Callable[[float], Awaitable[int]]:
    """Of a video of the synthetic world."""
    return awaited(lambda seconds: frames_at(spec, [seconds])[0])
