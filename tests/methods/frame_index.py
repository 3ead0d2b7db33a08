"""`ToolContext.index_at` without a video."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


def awaited(index_of: Callable[[float], int]) -> Callable[[float], Awaitable[int]]:
    async def index_at(seconds: float) -> int:
        return index_of(seconds)

    return index_at
