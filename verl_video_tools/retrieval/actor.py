"""The service as a Ray actor: one per node and config, shared by all workers of a run on that node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl_video_tools.errors import RetrievalError
from verl_video_tools.retrieval.config import RetrievalConfig
from verl_video_tools.retrieval.encoders import load_encoder
from verl_video_tools.retrieval.service import RetrievalService, RetrievalStats

_QUERIES_AT_ONCE = 1000


class RetrievalActor:
    """`RetrievalService` behind Ray. An encoder that cannot be loaded is every query's answer: starting again and
    again would not mend it."""

    def __init__(self, config: RetrievalConfig) -> None:
        self._service: RetrievalService | None = None
        self._failure = ""
        try:
            self._service = RetrievalService(load_encoder(config), config)
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        return await self._loaded().best_frames(video_path, candidates, text, num_frames, deadline_seconds)

    async def stats(self) -> RetrievalStats:
        return self._loaded().stats()

    def _loaded(self) -> RetrievalService:
        if self._service is None:
            raise RetrievalError(f"the retrieval service could not start: {self._failure}")
        return self._service


def node_actor(config: RetrievalConfig) -> Any:
    """Handle of this node's actor; made by whoever asks first. It lives as long as that process keeps its handle."""
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
            # Candidates are decoded once, for their embeddings: cached pictures would only drive out the rollouts'.
            runtime_env={"env_vars": {"VVT_FRAME_CACHE_BYTES": "0"}},
        )
        .remote(config)
    )
