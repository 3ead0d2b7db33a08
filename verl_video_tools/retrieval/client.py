"""How a process gets a retriever: the node's actor, or a service of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from verl_video_tools.errors import RetrievalError, SetupError
from verl_video_tools.retrieval.config import RetrievalConfig
from verl_video_tools.retrieval.service import RetrievalService, RetrievalStats


class RayRetriever:
    """A `types.Retriever` that asks the actor of its node.

    A query that meets a dead actor fails; the next one starts another, which knows only what is on disk.
    """

    def __init__(self, config: RetrievalConfig) -> None:
        self._config = config
        self._actor: Any = None

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """As `types.Retriever.best_frames`; the deadline includes the time that the actor takes to start."""
        arguments = (video_path, [int(index) for index in candidates], text, num_frames, deadline_seconds)
        answer: list[int] = await self._ask("best_frames", arguments, deadline_seconds)
        return answer

    async def stats(self, deadline_seconds: float = 60.0) -> RetrievalStats:
        """What the node's actor has done so far.

        Raises:
            RetrievalError: it cannot tell.
        """
        answer: RetrievalStats = await self._ask("stats", (), deadline_seconds)
        return answer

    def start(self) -> None:
        """Have the actor started, if there is none yet; it loads its encoder in its own process."""
        if self._actor is None:
            from verl_video_tools.retrieval.actor import node_actor

            self._actor = node_actor(self._config)

    async def _ask(self, method: str, arguments: tuple[Any, ...], deadline_seconds: float) -> Any:
        from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

        try:
            self.start()
            reply = getattr(self._actor, method).remote(*arguments)
            return await asyncio.wait_for(asyncio.wrap_future(reply.future()), deadline_seconds)
        except RayTaskError as error:  # what the service raised, without the far side's stack in its text
            raise error.cause from None
        except TimeoutError as error:
            raise RetrievalError(f"the retrieval service did not answer within {deadline_seconds} s") from error
        except RayError as error:
            if not isinstance(error, ActorUnavailableError):  # one that may come back lives as long as its first handle
                self._actor = None
            raise RetrievalError(f"the retrieval service failed: {type(error).__name__}: {error}") from error


@cache
def connect(config: RetrievalConfig) -> RayRetriever:
    """The retriever of this process for a config: a client of its node's actor, which is started if there is none.

    Raises:
        SetupError: this process has no connection to Ray.
    """
    import ray

    if not ray.is_initialized():
        raise SetupError("retrieval.connect needs Ray: call ray.init first, or take retrieval.local")
    retriever = RayRetriever(config)
    retriever.start()
    return retriever


def local(config: RetrievalConfig) -> RetrievalService:
    """A service in this process, for one event loop; loads the encoder, which takes seconds.

    Raises:
        SetupError, UsageError: as `encoders.load_encoder`.
    """
    from verl_video_tools.retrieval.encoders import load_encoder

    return RetrievalService(load_encoder(config), config)


def local_from_fields(fields: Mapping[str, Any]) -> RetrievalService | None:
    """`local` with the options of a command line; None without any.

    Raises:
        UsageError: an unknown field or a wrong value; else as `local`.
    """
    return local(RetrievalConfig.from_fields(fields)) if fields else None
