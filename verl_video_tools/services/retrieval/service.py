"""The search itself, for one event loop: which candidates are most like a text.

A query costs its frames only where they are not known yet, and always its text. Frames are known by video file (path,
size, time of change), encoder and frame index, so queries with other candidates share those that overlap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import Box, FrameRequest, Region
from verl_video_tools.services.retrieval.batcher import TextBatcher
from verl_video_tools.services.retrieval.config import RetrievalConfig
from verl_video_tools.services.retrieval.embeddings import DiskTier, FrameEmbeddings, MemoryTier
from verl_video_tools.services.retrieval.encoders import Encoder, centre_part
from verl_video_tools.video import Video, decode_frames, open_video, run_with_reader
from verl_video_tools.video.pool import identify

Input = TypeVar("Input")
Result = TypeVar("Result")

_VIDEOS_AT_ONCE = 8
"""Videos whose frames are decoded at the same time: bounds the images in memory."""
_KEYFRAME_BYTES = 1 << 26
"""Indices of key frames in memory: an hour of video has some kB, one of key frames alone 0.9 MB."""
_SIMILARITY_DECIMALS = 5
"""Cosines are compared to so many decimals: the same image, encoded in another batch, differs in the seventh."""


@dataclass(frozen=True, slots=True)
class RetrievalStats:
    """What a service has done so far."""

    queries: int
    failures: int
    """Queries that ended in an error."""
    frames_asked: int
    frames_encoded: int
    """Those of them that no cache had."""
    text_queries: int
    """Texts that were encoded, counted once per query."""
    text_batches: int
    stored_bytes: int
    """Embeddings in memory."""


class RetrievalService:
    """A `core.types.Retriever` with an encoder of its own.

    Args:
        encoder: runs in one thread of the service.
        config: batches, caches and frame mode.
    """

    def __init__(self, encoder: Encoder, config: RetrievalConfig) -> None:
        self._encoder = encoder
        self._config = config
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vvt-encoder")
        self._texts = TextBatcher(self._encode_texts, config.text_batch_size, config.max_wait_ms / 1e3)
        self._memory: MemoryTier[FrameEmbeddings] = MemoryTier(config.memory_cache_bytes)
        self._keyframes: MemoryTier[npt.NDArray[np.int64]] = MemoryTier(_KEYFRAME_BYTES)
        folder = config.disk_cache_dir
        self._disk = None if folder is None else DiskTier(Path(folder).expanduser(), encoder.identity)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(_VIDEOS_AT_ONCE)
        self._num_queries = self._num_failures = self._num_asked = self._num_encoded = 0

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """As `core.types.Retriever.best_frames`.

        With `frame_mode="keyframe"` the key frame before a candidate stands for it; candidates with the same key frame
        are equally alike, so the earlier one is better. Where the candidates have fewer key frames than `num_frames`
        they are compared exactly: a choice among equals would be none.
        """
        self._num_queries += 1
        try:
            async with asyncio.timeout(deadline_seconds) as timeout:
                return await self._best_frames(
                    video_path, candidates, text, num_frames, time.monotonic() + deadline_seconds
                )
        except TimeoutError as error:
            self._num_failures += 1
            if not timeout.expired():  # a decoder's DeadlineError
                raise
            raise RetrievalError(
                f"{video_path}: {len(candidates)} frames were not searched within {deadline_seconds} s"
            ) from error
        except Exception:
            self._num_failures += 1
            raise

    def stats(self) -> RetrievalStats:
        """Counters since the start."""
        return RetrievalStats(
            queries=self._num_queries,
            failures=self._num_failures,
            frames_asked=self._num_asked,
            frames_encoded=self._num_encoded,
            text_queries=self._texts.num_queries,
            text_batches=self._texts.num_batches,
            stored_bytes=self._memory.stored_bytes,
        )

    # ------------------------------------------------------------------------------------------------------- internals

    async def _best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, end: float
    ) -> list[int]:
        stand_ins = await self._stand_ins(video_path, candidates, num_frames, end)
        shown, places = np.unique(np.asarray(stand_ins, np.int64), return_inverse=True)
        # A query that fails on its text has its frames encoded all the same: the next one will want them.
        text_D, known = await asyncio.gather(
            self._texts.embedding(text), self._embeddings(video_path, shown.tolist(), end)
        )
        similarities = np.round(known.of(shown.tolist()) @ text_D, _SIMILARITY_DECIMALS)[places]
        best = np.argsort(-similarities, kind="stable")[:num_frames]
        return [int(candidates[place]) for place in best]

    async def _stand_ins(
        self, video_path: str, candidates: Sequence[int], num_frames: int, end: float
    ) -> Sequence[int]:
        """The frame that is compared for each candidate."""
        if self._config.frame_mode == "exact":
            return candidates
        keyframes = await self._keyframes_of(video_path, end)
        stand_ins = keyframes[np.searchsorted(keyframes, candidates, side="right") - 1]
        if len(np.unique(stand_ins)) < min(num_frames, len(candidates)):
            return candidates
        return stand_ins.tolist()

    async def _keyframes_of(self, video_path: str, end: float) -> npt.NDArray[np.int64]:
        """Indices of a video's key frames, and 0; from memory, since a process keeps but a few readers open."""
        digest = (await identify(video_path, _left_seconds(end))).digest
        keyframes = self._keyframes.get(digest)
        if keyframes is None:
            video = await open_video(video_path, _left_seconds(end))
            marked = await run_with_reader(video, Video.keyframe_indices, _left_seconds(end), "find key frames")
            keyframes = np.union1d(marked, [0]).astype(np.int64)  # a file that was cut may begin between two of them
            self._keyframes.put(digest, keyframes)
        return keyframes

    async def _embeddings(self, video_path: str, indices: Sequence[int], end: float) -> FrameEmbeddings:
        """Embeddings of at least these frames; each is encoded once, however many queries wait for it."""
        self._num_asked += len(indices)
        digest = (await identify(video_path, _left_seconds(end))).digest
        known = self._memory.get(digest)
        if known is not None and not known.missing(indices):
            return known
        lock = self._locks.setdefault(digest, asyncio.Lock())
        async with lock:
            known = self._memory.get(digest) or FrameEmbeddings.none()
            if self._disk is not None and known.missing(indices):
                known = await asyncio.to_thread(self._disk.with_stored, digest, known)  # another node may have added
            missing = known.missing(indices)
            if missing:
                async with self._slots:
                    video = await open_video(video_path, _left_seconds(end))
                    size = self._config.image_batch_size
                    for start in range(0, len(missing), size):
                        further = await self._encoded(video, missing[start : start + size], end)
                        known = known.joined_with(further)
                        self._memory.put(digest, known)  # at once: after a deadline the next query goes on from here
                        if self._disk is not None:
                            written = await asyncio.to_thread(self._disk.add, digest, further)
                            known = replace(known, files=known.files | written)
            self._memory.put(digest, known)
            return known

    async def _encoded(self, video: Video, indices: Sequence[int], end: float) -> FrameEmbeddings:
        """Embeddings of frames, given in ascending order."""
        part = centre_part(video.info.width, video.info.height) if self._encoder.crops_centre else None
        shown = (video.info.width, video.info.height) if part is None else (part.width, part.height)
        region = None if part is None else Region(Box(*part))
        request = FrameRequest(*self._encoder.image_size(*shown), indices=tuple(indices), region=region)
        batch = await decode_frames(video, request, _left_seconds(end))
        embeddings_TD = await self._on_encoder(self._encoder.encode_images, batch.frames_THWC)
        self._num_encoded += len(indices)
        return FrameEmbeddings(np.asarray(indices, np.int64), embeddings_TD)

    async def _encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        return await self._on_encoder(self._encoder.encode_texts, texts)

    async def _on_encoder(self, function: Callable[[Input], Result], argument: Input) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, argument)
        except Exception as error:
            raise RetrievalError(f"the encoder failed: {type(error).__name__}: {error}") from error


def _left_seconds(end: float) -> float:
    return max(0.0, end - time.monotonic())
