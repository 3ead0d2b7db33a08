"""Which failures are worth another request, and when it is made."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from verl_video_tools.core.errors import EndpointError

if TYPE_CHECKING:
    from tenacity import RetryCallState

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


def wait_seconds(state: RetryCallState) -> float:
    """The pause before the next attempt, at least as long as the endpoint asks for (a `wait` of tenacity).

    Random: requests that were refused together would otherwise come again together.
    """
    from tenacity.wait import wait_exponential

    backoff_seconds = wait_exponential(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)(state) * random.uniform(0.5, 1.5)
    error = None if state.outcome is None else state.outcome.exception()
    asked_seconds = error.retry_after_seconds if isinstance(error, Unavailable) else None
    if not asked_seconds:
        return backoff_seconds
    return max(backoff_seconds, asked_seconds + random.uniform(0.0, FIRST_BACKOFF_SECONDS))
