"""Decoded frames that a process keeps for the next request, bounded in bytes.

One process is enough: verl hands all rollouts of a group to one agent loop worker.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from verl_video_tools.core.bounded_cache import BoundedCache
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import FrameBatch, FrameRequest
from verl_video_tools.video.batch import DecodedFrame, FrameView, batch_of
from verl_video_tools.video.source import NEVER, Deadline
from verl_video_tools.video.video import FileIdentity, Video

BYTES_VARIABLE = "VVT_FRAME_CACHE_BYTES"
"""Environment variable: the capacity of each process's cache. A variable, since every worker process reads it."""

DEFAULT_BYTES = 1 << 30
"""The initial frames of eight FrameMind groups on all rungs of its ladder, the largest of the recipes."""

ENTRY_BYTES = 1024
"""Counted for each frame beside its pixels: key, labels and array."""


class FrameKey(NamedTuple):
    """A frame of a file, or a part of it, at a size."""

    file: FileIdentity
    backend: str
    """Backends differ in a pixel's last bits."""
    view: FrameView


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What this process got from its cache so far, and how full the cache is."""

    hits: int
    """Frames that came from the cache."""
    misses: int
    """Frames that had to be decoded."""
    stored_bytes: int
    capacity_bytes: int


class FrameCache:
    """The frames used last, within a number of bytes; 0 keeps none. Thread-safe."""

    def __init__(self, capacity_bytes: int) -> None:
        self._frames: BoundedCache[FrameKey, DecodedFrame] = BoundedCache(
            capacity_bytes, lambda frame: frame.pixels_HWC.nbytes + ENTRY_BYTES
        )
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self._hits, self._misses, self._frames.stored_bytes, self._frames.capacity_bytes)

    def decode(
        self, video: Video, request: FrameRequest, deadline: Deadline = NEVER, prefetch: Sequence[FrameRequest] = ()
    ) -> FrameBatch:
        """The frames of a request, of which those that are not in the cache are decoded in one pass.

        Args:
            prefetch: what others are about to request of this video. If anything has to be decoded, their frames are
                decoded in the same pass and kept. Without a cache they are ignored.

        Raises:
            VideoError: see `Video.decode_many`.
        """
        keys = _keys(video, request)
        frames = {key: frame for key in keys if (frame := self._frames.get(key)) is not None}
        num_cached = sum(key in frames for key in keys)
        if num_cached < len(keys):
            missing = dict.fromkeys(key for key in keys if key not in frames)
            if self._frames.capacity_bytes:
                siblings = (key for other in prefetch for key in _keys(video, other))
                missing |= dict.fromkeys(key for key in siblings if key not in frames and self._frames.get(key) is None)
            decoded = video.decode([key.view for key in missing], deadline)
            for key in missing:
                frames[key] = decoded[key.view]
                self._frames.put(key, frames[key])
        with self._lock:
            self._hits += num_cached
            self._misses += len(keys) - num_cached
        return batch_of([frames[key] for key in keys], request, video.region_of(request), num_cached)


def _keys(video: Video, request: FrameRequest) -> list[FrameKey]:
    of_file = video.identity, video.backend
    return [FrameKey(*of_file, view) for view in video.views_of(request)]


def capacity_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """The capacity that the environment sets.

    Raises:
        UsageError: it is no number of bytes.
    """
    text = environment.get(BYTES_VARIABLE) or str(DEFAULT_BYTES)
    if not text.isdecimal():
        raise UsageError(f"environment variable {BYTES_VARIABLE} must be a number of bytes, 0 for none, got {text!r}")
    return int(text)
