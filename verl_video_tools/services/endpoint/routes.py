"""Which of several addresses requests are sent to: the least busy, and another one where it gives no reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from verl_video_tools.services.endpoint.retries import FIRST_BACKOFF_SECONDS, AttemptFailed, BrokenReply, Unavailable

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

MAX_REST_SECONDS = 30.0
"""For which an address that gave no reply is passed over at most, but where it asks for longer itself. It begins with
the first pause of a retry, and doubles with each failure."""


class Place:
    """One address, within one event loop.

    Attributes:
        num_routes: of those under way, how many send their requests here.
    """

    def __init__(self, base_url: str, client: AsyncOpenAI) -> None:
        self.base_url = base_url
        self.client = client
        self.num_routes = 0
        self._num_failures = 0
        self._rests_until = float("-inf")

    def rest_seconds(self) -> float:
        """For how long it is still to be passed over; 0 where it is not."""
        return max(0.0, self._rests_until - asyncio.get_running_loop().time())

    def replied(self) -> None:
        """It gave a reply."""
        self._num_failures, self._rests_until = 0, float("-inf")

    def failed(self, error: AttemptFailed) -> None:
        """It gave none."""
        asked_seconds = error.retry_after_seconds if isinstance(error, Unavailable) else None
        own_seconds = min(FIRST_BACKOFF_SECONDS * 2.0**self._num_failures, MAX_REST_SECONDS)
        self._num_failures = min(self._num_failures + 1, 16)
        self._rests_until = asyncio.get_running_loop().time() + max(own_seconds, asked_seconds or 0.0)


class Route:
    """Where requests that belong together are sent. Counts at its place while it is used as a context."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self.place = self._best()

    def leave(self, error: AttemptFailed) -> bool:
        """Go on elsewhere after a request that got no reply.

        Returns:
            Whether the next request goes to another address that is not known to fail.
        """
        if not isinstance(error, Unavailable | BrokenReply):
            return False  # a reply that cannot be used says nothing about who gave it
        left = self.place
        left.failed(error)
        best = self._best()
        if best is left or best.rest_seconds() > 0:
            return False
        logger.warning("%s gave no reply, %s is asked instead: %s", left.base_url, best.base_url, error)
        left.num_routes -= 1
        best.num_routes += 1
        self.place = best
        return True

    def _best(self) -> Place:
        return min(self._places, key=lambda place: (place.rest_seconds(), place.num_routes))

    def __enter__(self) -> Self:
        self.place.num_routes += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.place.num_routes -= 1
