"""Decoded frames that a process keeps for the next request, bounded in bytes.

One process is enough: verl hands all rollouts of a group to one agent loop worker.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.regions import PixelBox
from verl_video_tools.core.types import FrameBatch, FrameRequest
from verl_video_tools.video.identity import FileIdentity
from verl_video_tools.video.source import NEVER, Deadline
from verl_video_tools.video.video import Video

BYTES_VARIABLE = "VVT_FRAME_CACHE_BYTES"
"""Environment variable: the capacity of each process's cache. A variable, since every worker process reads it."""

DEFAULT_BYTES = 1 << 30
"""The first frames of eight FrameMind groups on all rungs of its ladder, the largest of the recipes."""

ENTRY_BYTES = 1024
"""Counted for each frame beside its pixels: key, labels and array."""


class FrameKey(NamedTuple):
    """A frame, or a part of one, at a size."""

    file: FileIdentity
    backend: str
    """Backends differ in a pixel's last bits."""
    frame_index: int
    width: int
    height: int
    region: PixelBox | None


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """Pixels and labels of one frame, as `FrameBatch` has them."""

    pixels_HWC: npt.NDArray[np.uint8]
    index: int
    timestamp_seconds: float
    corrupt: bool


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
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._frames: OrderedDict[FrameKey, DecodedFrame] = OrderedDict()
        self._stored_bytes = self._hits = self._misses = 0

    def get(self, key: FrameKey) -> DecodedFrame | None:
        with self._lock:
            if key in self._frames:
                self._frames.move_to_end(key)
            return self._frames.get(key)

    def put(self, key: FrameKey, frame: DecodedFrame) -> None:
        """Keep a copy, and drop the frames that were used longest ago if need be."""
        num_bytes = frame.pixels_HWC.nbytes + ENTRY_BYTES
        if num_bytes > self._capacity_bytes:
            return
        # A row of a batch would keep the whole batch alive.
        kept = replace(frame, pixels_HWC=frame.pixels_HWC.copy())
        with self._lock:
            if key not in self._frames:
                self._frames[key] = kept
                self._stored_bytes += num_bytes
            while self._stored_bytes > self._capacity_bytes:
                _, dropped = self._frames.popitem(last=False)
                self._stored_bytes -= dropped.pixels_HWC.nbytes + ENTRY_BYTES

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self._hits, self._misses, self._stored_bytes, self._capacity_bytes)

    def decode(
        self, video: Video, request: FrameRequest, deadline: Deadline = NEVER, prefetch: Sequence[FrameRequest] = ()
    ) -> FrameBatch:
        """The frames of a request, of which those that are not in the cache are decoded in one pass.

        Args:
            prefetch: what others are about to ask of this video. If anything has to be decoded, their frames are
                decoded in the same pass and kept. Without a cache they are ignored.

        Raises:
            VideoError: see `Video.decode_many`.
        """
        keys = _keys(video, request)
        cached = {key: frame for key in keys if (frame := self.get(key)) is not None}
        decoded: dict[FrameKey, DecodedFrame] = {}
        if len(cached) < len(set(keys)):
            others = prefetch if self._capacity_bytes else ()
            known = set(cached)
            passes: list[tuple[list[FrameKey], FrameRequest]] = []
            for each in (request, *others):
                asked = keys if each is request else _keys(video, each)
                missing = [key for key in dict.fromkeys(asked) if key not in known and self.get(key) is None]
                known.update(missing)
                passes.append((missing, _by_index(each, missing)))
            batches = video.decode_many([by_index for _, by_index in passes], deadline)
            for (missing, _), batch in zip(passes, batches, strict=True):
                decoded.update(zip(missing, _frames_of(batch), strict=True))
            for key, frame in decoded.items():
                self.put(key, frame)
        num_cached = sum(key in cached for key in keys)
        with self._lock:
            self._hits += num_cached
            self._misses += len(keys) - num_cached
        frames = [(cached if key in cached else decoded)[key] for key in keys]
        return _batch_of(frames, (request.height, request.width), num_cached, video.region_of(request))


def _keys(video: Video, request: FrameRequest) -> list[FrameKey]:
    region = video.region_of(request)
    indices = video.indices_of(request)
    of_file = video.identity, video.backend
    return [FrameKey(*of_file, index, request.width, request.height, region) for index in indices]


def _by_index(request: FrameRequest, keys: Sequence[FrameKey]) -> FrameRequest:
    indices = tuple(key.frame_index for key in keys)
    return FrameRequest(request.width, request.height, indices=indices, region=request.region)


def _frames_of(batch: FrameBatch) -> list[DecodedFrame]:
    labels = batch.indices.tolist(), batch.timestamps_seconds.tolist(), batch.corrupt.tolist()
    return [DecodedFrame(*each) for each in zip(batch.frames_THWC, *labels, strict=True)]


def _batch_of(
    frames: Sequence[DecodedFrame], size: tuple[int, int], num_cached: int, region: PixelBox | None
) -> FrameBatch:
    frames_THWC: npt.NDArray[np.uint8] = np.empty((len(frames), *size, 3), dtype=np.uint8)
    for row, frame in enumerate(frames):
        frames_THWC[row] = frame.pixels_HWC
    return FrameBatch(
        frames_THWC=frames_THWC,
        timestamps_seconds=np.array([frame.timestamp_seconds for frame in frames], dtype=np.float64),
        corrupt=np.array([frame.corrupt for frame in frames], dtype=np.bool_),
        indices=np.array([frame.index for frame in frames], dtype=np.int64),
        num_cached=num_cached,
        region=region,
    )


def capacity_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """The capacity that the environment sets.

    Raises:
        UsageError: it is no number of bytes.
    """
    text = environment.get(BYTES_VARIABLE) or str(DEFAULT_BYTES)
    if not text.isdecimal():
        raise UsageError(f"environment variable {BYTES_VARIABLE} must be a number of bytes, 0 for none, got {text!r}")
    return int(text)
