"""How a request reaches an endpoint: which failures are worth another, when it is made, and at which address.

`BoundedHttpClient` is the HTTP client beneath it. It needs the package `openai`, so it is made where it is needed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Self

from verl_video_tools.core.errors import EndpointError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
"""Wait after the first failed attempt; it doubles with each further one, times a random factor from 0.5 to 1.5."""

MAX_BACKOFF_SECONDS = 8.0
"""Where that doubling ends: a server that comes back is noticed within seconds."""


class AttemptFailed(EndpointError):
    """One attempt failed in a way that another may not: the reply cannot be used."""


class BrokenReply(AttemptFailed):
    """What came is no reply of such an endpoint at all, such as a proxy's page of HTML."""


class Unavailable(AttemptFailed):
    """The endpoint gave no reply: busy, failing, or not reached. That says nothing about what was asked.

    Args:
        retry_after_seconds: for how long it asks not to be asked again.
    """

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class InternalError(Unavailable):
    """HTTP 500: the endpoint fails altogether or on what it was asked; the latter where it replies to others."""


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The header `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3); None without one that can be read."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (TypeError, ValueError):
            return None
        # A date without a zone is in UTC, as every date of HTTP.
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def wait_seconds(num_failed: int, error: AttemptFailed) -> float:
    """The pause before the next attempt, at least as long as the endpoint asks for.

    Random: requests that were refused together would otherwise come again together.

    Args:
        num_failed: attempts so far, at least 1.
        error: why the last one failed.
    """
    # The exponent is bounded, as a deadline of hours may see thousands of attempts.
    backoff_seconds = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(num_failed - 1, 16), MAX_BACKOFF_SECONDS)
    backoff_seconds *= random.uniform(0.5, 1.5)
    asked_seconds = error.retry_after_seconds if isinstance(error, Unavailable) else None
    if not asked_seconds:
        return backoff_seconds
    return max(backoff_seconds, asked_seconds + random.uniform(0.0, FIRST_BACKOFF_SECONDS))


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
