"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines that compute for milliseconds between two awaits, so that the caller's loop only waits for them.

    The thread lives as long as the process.

    Args:
        name: of the thread, as profilers show it.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, or its exception. It sees the caller's context variables; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))
