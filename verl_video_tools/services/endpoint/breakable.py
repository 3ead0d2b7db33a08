"""`BreakableClient`: a client of a model behind an endpoint that asks nothing while the model is down."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Generic, Self
from weakref import WeakKeyDictionary

from verl_video_tools.core.errors import EndpointError, VideoToolsError
from verl_video_tools.services.endpoint.breaker import CircuitBreaker, Question
from verl_video_tools.services.endpoint.client import EndpointClient
from verl_video_tools.services.endpoint.config import EndpointConfig
from verl_video_tools.services.endpoint.retries import Unavailable


class BreakableClient(ABC, Generic[Question]):
    """What the judge and the tools' model share: connections and a circuit breaker per event loop, and how they close.

    Args:
        endpoint: `base_url` must be set.
        probe_interval_seconds: between two probes of a model that is down.
        name: of the model, in messages.
        refusal: raised where it is down.

    Raises:
        UsageError: as `EndpointClient`.
    """

    def __init__(
        self, endpoint: EndpointConfig, probe_interval_seconds: float, name: str, refusal: type[VideoToolsError]
    ) -> None:
        self._endpoint = EndpointClient(endpoint)
        self._breaker_options = (endpoint.deadline_seconds, probe_interval_seconds, name, refusal)
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
