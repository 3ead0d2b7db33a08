"""The attempts at one reply of an endpoint, and a circuit breaker for a model that is down."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass

from verl_video_tools.core.errors import EndpointError

logger = logging.getLogger(__name__)

MAX_REPLIES = 4
"""Unusable replies before a request fails: a repeated question seldom gets a better reply."""


class BrokenReply(EndpointError):
    """What came is no reply of such an endpoint at all, such as a proxy's page of HTML."""


class CircuitBreaker:
    """Lets requests fail at once while a model is down.

    It counts as down once a request has failed because it was not available, and none has got a reply for as long as
    one may take. From then on one request at a time finds out whether it is back.

    Args:
        name: of the model, in messages: "judge".
        silence_seconds: for how long one reply may take.
    """

    def __init__(self, name: str, silence_seconds: float) -> None:
        self._name = name
        self._silence_seconds = silence_seconds
        self.replied_at = float("-inf")
        self._fault: EndpointError | None = None
        self._next_probe_at = 0.0

    def check(self) -> bool:
        """Whether a request is the one that finds out; False where the model is not down.

        Raises:
            EndpointError: the model is down, and it is not yet time to ask again.
        """
        if self._fault is None:
            return False
        now = time.monotonic()
        if now < self._next_probe_at:
            raise EndpointError(
                f"not asked: the {self._name} counts as down and is asked again every {self._silence_seconds:g} s; "
                f"{self._fault}"
            )
        self._next_probe_at = now + self._silence_seconds
        return True

    def replied(self) -> None:
        """The model answered, whatever it said."""
        self.replied_at = time.monotonic()
        if self._fault is not None:
            self._fault = None
            logger.warning("the %s is back", self._name)

    def failed(self, error: EndpointError) -> None:
        """The model was not available."""
        now = time.monotonic()
        if self._fault is None and now - self.replied_at > self._silence_seconds:
            self._fault, self._next_probe_at = error, now + self._silence_seconds
            logger.error("the %s counts as down: %s", self._name, error)


@dataclass
class Attempts:
    """The HTTP requests that one reply takes."""

    num_sent: int = 0
    num_internal_errors: int = 0
    last_failure: str = ""
    began_at: float = 0.0
    """When its turn came, on the monotonic clock."""
    breaker: CircuitBreaker | None = None

    def fails_on_this(self) -> bool:
        """Whether the endpoint fails on this request (HTTP 500), while it answers others."""
        answers_others = self.breaker is not None and self.breaker.replied_at > self.began_at
        return answers_others and self.num_internal_errors >= MAX_REPLIES


ATTEMPTS: ContextVar[Attempts] = ContextVar("ATTEMPTS")
"""Of the request under way, for the HTTP client beneath the `openai` package, which alone sees each attempt."""

NO_RETRY = ("x-should-retry", "false")
"""A header by which the `openai` package stops asking again."""
