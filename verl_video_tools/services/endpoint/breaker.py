"""`CircuitBreaker`: nobody waits for a model that is known to be down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from verl_video_tools.core.errors import EndpointError, VideoToolsError

logger = logging.getLogger(__name__)

Question = TypeVar("Question")


class CircuitBreaker(Generic[Question]):
    """Whether a model counts as down. Used within one event loop.

    It is down once a question has failed because it was not available, and none has got a reply for as long as one may
    take: all that were under way have tried in vain. From then on questions are refused at once, and a task asks one of
    them again at intervals, on which no rollout waits, until it is answered.

    Args:
        probe: asks one question, once, and waits for the reply; raises where none comes.
        silence_seconds: time without a reply, after which a failure shows that it is down.
        interval_seconds: pause before the first probe, and between two.
        name: of the model, in messages: "judge".
        refusal: raised where it is down.
    """

    def __init__(
        self,
        probe: Callable[[Question], Awaitable[object]],
        silence_seconds: float,
        interval_seconds: float,
        name: str,
        refusal: type[VideoToolsError],
    ) -> None:
        self._probe = probe
        self._silence_seconds = silence_seconds
        self._interval_seconds = interval_seconds
        self._name = name
        self._refusal = refusal
        self._replied_at = float("-inf")
        self._fault: str | None = None
        self._question: Question | None = None
        self._probing: asyncio.Task[None] | None = None

    def check(self, question: Question) -> None:
        """Let a question pass, or keep it for the next probe.

        Raises:
            VideoToolsError: the model is down; as the `refusal` that was given.
        """
        if self._fault is not None:
            self._question = question  # the latest: one that no model answers must not hold it down for ever
            every = f"is asked again every {self._interval_seconds:g} s"
            raise self._refusal(f"not asked: the {self._name} counts as down and {every}; {self._fault}")

    def replied(self) -> None:
        """The model answered, whatever it said."""
        self._replied_at = asyncio.get_running_loop().time()
        if self._fault is not None:
            self._fault = None
            logger.warning("the %s is back", self._name)

    def failed(self, question: Question, error: EndpointError) -> None:
        """The model was not available for a question."""
        silent_seconds = asyncio.get_running_loop().time() - self._replied_at
        if self._fault is not None or silent_seconds < self._silence_seconds:
            return
        self._fault, self._question = str(error), question
        logger.error("the %s counts as down: %s", self._name, error)
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe_until_back(), name=f"probe of the {self._name}")

    async def aclose(self) -> None:
        """End the probes."""
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing

    async def _probe_until_back(self) -> None:
        while self._fault is not None:
            await asyncio.sleep(self._interval_seconds)
            assert self._question is not None
            try:
                await self._probe(self._question)
            except Exception as error:
                logger.info("the %s is still down: %s: %s", self._name, type(error).__name__, error)
            else:
                self.replied()
