"""Whether the chat template behind an endpoint opens a reasoning. A turn that was cut bears no sign of it, and this
alone decides whether the turn is a thought or an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from verl_video_tools.core.errors import EndpointError
from verl_video_tools.core.reasoning import OPENING, lacks_opening
from verl_video_tools.services.endpoint import Completion, Route

QUESTION = "Name one fruit."
"""It takes few thoughts."""
_SHORT = {
    "messages": [
        {"role": "system", "content": "Answer with one word."},
        {"role": "user", "content": QUESTION},
    ],
    "max_tokens": 4096,
}

Send = Callable[[Route, dict[str, Any]], Awaitable[Completion]]
"""The reply to a request; raises EndpointError where there is none."""


class OpenedReasoning:
    """Knows it by the reply to one short question, which is the same in every run. Turns of other rollouts decide only
    where that question gets no whole reply: which of them ends before one is cut is chance."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = asyncio.Lock()
        self._has_reply = False
        self._answer: bool | None = None
        self._is_seen = False

    def see(self, text: str) -> None:
        """Take note of a turn."""
        self._is_seen = self._is_seen or lacks_opening(text)

    async def before(self, reply: Completion, route: Route) -> bool:
        """Whether the template has opened a reasoning before a reply that was cut, and that does not show it."""
        if reply.reasoning is not None or not reply.text.strip() or reply.text.lstrip().startswith(OPENING):
            return False
        async with self._lock:
            if not self._has_reply:
                self._answer = await self._reply_shows_it(route)
                self._has_reply = True
        return self._is_seen if self._answer is None else self._answer

    async def _reply_shows_it(self, route: Route) -> bool | None:
        try:
            reply = await self._send(route, dict(_SHORT))
        except EndpointError:
            return None
        if lacks_opening(reply.text):
            return True
        is_whole = reply.finish_reason != "length" or reply.reasoning is not None or OPENING in reply.text
        return False if is_whole else None
