"""The options of retrieval by text. Import-light: agent loops read them without ever loading an encoder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from verl_video_tools.core.config import checked_fields, require

Backend = Literal["transformers", "open_clip"]


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """Which encoder compares frames with texts, where it runs, and what it remembers.

    Raises:
        UsageError: a value outside its range.
    """

    backend: Backend = "transformers"
    """`transformers` (CLIP, SigLIP and SigLIP2 of fixed resolution), or `open_clip` (extra `retrieval`)."""
    model: str = "google/siglip2-base-patch16-224"
    """Folder or Hugging Face name; for `open_clip` also its own names, such as ViT-B-16-SigLIP2, or
    `local-dir:/path`."""
    pretrained: str | None = None
    """Weights of a model that `open_clip` knows by name, such as `webli`."""
    num_gpus: float = 0.0
    """GPU share of a node's actor, outside verl's pool, else every query times out; 0: CPU."""
    num_threads: int | None = None
    """CPU threads of the encoder. None: OMP_NUM_THREADS; if that is not set, Ray gives an actor one."""
    memory_cache_bytes: int = 1 << 30
    """Embeddings in memory; a frame takes 2 to 5 kB. The least recently used video is evicted."""

    def __post_init__(self) -> None:
        require(self, "model", bool(self.model), "a folder or a name")
        has_tag = self.pretrained is not None
        require(self, "pretrained", not has_tag or self.backend == "open_clip", "None unless the backend is open_clip")
        require(self, "num_gpus", 0.0 <= self.num_gpus <= 1.0, "0 to 1")
        require(self, "num_threads", self.num_threads is None or self.num_threads >= 1, "at least 1, or None")
        require(self, "memory_cache_bytes", self.memory_cache_bytes >= 0, "at least 0")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> RetrievalConfig:
        """The options as a configuration file or a command line gives them.

        Raises:
            UsageError: an unknown field or a wrong value.
        """
        return cls(**checked_fields(cls, fields))

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that differ where any option does."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
