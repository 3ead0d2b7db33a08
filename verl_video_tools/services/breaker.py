"""Nobody waits for a model that is down: `CircuitBreaker`, and `BreakableClient` for models that have one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

from verl_video_tools.core.errors import EndpointError, VideoToolsError
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.endpoint import EndpointClient
from verl_video_tools.services.transport import Unavailable

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


class BreakableClient(ABC, Generic[Question]):
    """What the judge and the tools' model share: connections and a circuit breaker per event loop, and how they close.

    Args:
        endpoint: `base_url` must be set.
        name: of the model, in messages.
        refusal: raised where it is down.

    Raises:
        UsageError: as `EndpointClient`.
    """

    def __init__(self, endpoint: EndpointConfig, name: str, refusal: type[VideoToolsError]) -> None:
        self._endpoint = EndpointClient(endpoint)
        silence_seconds = endpoint.deadline_seconds
        # Two probes in the time that one question may take: nobody waits long for a model that is back.
        self._breaker_options = (silence_seconds, silence_seconds / 2, name, refusal)
        self._breakers: WeakKeyDictionary[asyncio.AbstractEventLoop, CircuitBreaker[Question]] = WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        breaker = self._breakers.pop(asyncio.get_running_loop(), None)
        if breaker is not None:
            await breaker.aclose()
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _breaker(self) -> CircuitBreaker[Question]:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        if loop not in self._breakers:
            self._breakers[loop] = CircuitBreaker(self._probe, *self._breaker_options)
        return self._breakers[loop]

    @abstractmethod
    def _request(self, model: str, question: Question) -> dict[str, Any]:
        """The body of a request that asks a question of a served model."""

    async def _probe(self, question: Question) -> None:
        """Ask once more what nobody waits for; raises EndpointError where the model does not reply."""
        try:
            async with self._endpoint.exchange() as exchange:
                await exchange.chat_completion(self._request(await exchange.model(), question))
        except Unavailable:
            raise
        except EndpointError:
            if exchange.is_late:
                raise
            # Else it replies, if not to this.
