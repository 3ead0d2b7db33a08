"""The service as a Ray actor: one per node and config, shared by all workers of a run on that node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

from verl_video_tools.core.errors import RetrievalError, SetupError
from verl_video_tools.services.config import RetrievalConfig
from verl_video_tools.services.retrieval import RetrievalService, local

_QUERIES_AT_ONCE = 1000


class RetrievalActor:
    """`RetrievalService` behind Ray. An encoder that cannot be loaded is every query's answer: starting again and
    again would not fix it."""

    def __init__(self, config: RetrievalConfig) -> None:
        self._service: RetrievalService | None = None
        self._failure = ""
        try:
            self._service = local(config)
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        if self._service is None:
            raise RetrievalError(f"the retrieval service could not start: {self._failure}")
        return await self._service.best_frames(video_path, candidates, text, num_frames, deadline_seconds)


def node_actor(config: RetrievalConfig) -> Any:
    """Handle of this node's actor. The first caller starts it, and it lives as long as that process keeps its
    handle."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node_id = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(RetrievalActor)
        .options(
            name=f"vvt-retrieval-{config.digest}-{node_id}",
            get_if_exists=True,
            num_cpus=0,  # verl's placement groups may have taken them all
            num_gpus=config.num_gpus,
            max_concurrency=_QUERIES_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            # Candidates are decoded once, for their embeddings.
            runtime_env={"env_vars": {"VVT_FRAME_CACHE_BYTES": "0"}},
        )
        .remote(config)
    )


class RayRetriever:
    """A `core.types.Retriever` that asks the actor of its node.

    If the actor is dead, a query fails, and the next query starts another actor, which has no embeddings yet.
    """

    def __init__(self, config: RetrievalConfig) -> None:
        self._config = config
        self._actor: Any = None

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """As `core.types.Retriever.best_frames`; the deadline includes the time that the actor takes to start."""
        from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

        arguments = (video_path, [int(index) for index in candidates], text, num_frames, deadline_seconds)
        try:
            self.start()
            reply = self._actor.best_frames.remote(*arguments)
            answer: list[int] = await asyncio.wait_for(asyncio.wrap_future(reply.future()), deadline_seconds)
        except RayTaskError as error:  # what the service raised, without the far side's stack in its text
            raise error.cause from None
        except TimeoutError as error:
            raise RetrievalError(f"the retrieval service did not answer within {deadline_seconds} s") from error
        except RayError as error:
            if not isinstance(error, ActorUnavailableError):  # one that may come back lives as long as its first handle
                self._actor = None
            raise RetrievalError(f"the retrieval service failed: {type(error).__name__}: {error}") from error
        return answer

    def start(self) -> None:
        """Start the actor of this node unless it runs. It loads its encoder in its own process."""
        if self._actor is None:
            self._actor = node_actor(self._config)


@cache
def connect(config: RetrievalConfig) -> RayRetriever:
    """The retriever of this process for a config: a client of its node's actor, which is started unless it runs.

    Raises:
        SetupError: this process has no connection to Ray.
    """
    import ray

    if not ray.is_initialized():
        raise SetupError("retrieval_actor.connect needs Ray: call ray.init first, or take services.retrieval.local")
    retriever = RayRetriever(config)
    retriever.start()
    return retriever
