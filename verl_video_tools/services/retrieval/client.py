"""A retriever in this process. In a training run the actor of the node serves all its processes
(`verl_plugin.retrieval_actor`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.services.retrieval.config import RetrievalConfig
from verl_video_tools.services.retrieval.service import RetrievalService


def local(config: RetrievalConfig) -> RetrievalService:
    """A service in this process, for one event loop; loads the encoder, which takes seconds.

    Raises:
        SetupError, UsageError: as `load_encoder`.
    """
    from verl_video_tools.services.retrieval.load_encoder import load_encoder

    return RetrievalService(load_encoder(config), config)


def local_from_fields(fields: Mapping[str, Any]) -> RetrievalService | None:
    """`local` with the options of a command line; None without any.

    Raises:
        UsageError: an unknown field or a wrong value; else as `local`.
    """
    return local(RetrievalConfig.from_fields(fields)) if fields else None
