"""Frames by text: which candidates are most like a text, for one event loop.

`local` is the service in this process; `verl_plugin.retrieval_actor` is the node's, as a Ray actor. `encoders` has the
encoders that it runs. `RecordingRetriever` notes the answers of a rollout, and `RecordedRetriever` gives them again:
executed anew the rollout shows the same frames, without an encoder.

A query costs its frames only where they are not known yet, and always its text. Frames are known by video file (path,
size, time of change), encoder and frame index, so queries with other candidates share those that overlap.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import Box, FrameRequest, PixelBox, Region, Retriever, Trajectory
from verl_video_tools.services.config import RetrievalConfig as RetrievalConfig
from verl_video_tools.video import Video, decode_frames, open_video
from verl_video_tools.video.decoding import identify

Input = TypeVar("Input")
Result = TypeVar("Result")

MEMORY_BYTES = 1 << 30
"""Of embeddings; a frame takes 2 to 5 kB. The least recently used video is evicted."""
_VIDEOS_AT_ONCE = 8
"""Videos whose frames are decoded at the same time: bounds the images in memory."""
_IMAGE_BATCH_SIZE = 32
"""Frames decoded and encoded at a time."""
_TEXT_BATCH_SIZE = 64
"""Texts encoded at a time."""
_MAX_WAIT_SECONDS = 0.005
"""How long the first text of a batch waits for others."""
_SIMILARITY_DECIMALS = 5
"""Cosines are compared to so many decimals: the same image, encoded in another batch, differs in the seventh."""

MAX_CENTRE_ASPECT = 16
"""Of frames whose centre is cropped: more elongated ones are cut to it first. Videos people watch stay whole."""


class Encoder(Protocol):
    """Puts frames and texts into one space. Called by one thread at a time."""

    @property
    def crops_centre(self) -> bool:
        """Whether it sees the middle square of a frame alone (`covering_size`), and not all of it, squeezed."""
        ...

    def image_size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height at which to decode a video of that size, so that the encoder need not resize."""
        ...

    def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, shape (T, D)."""
        ...

    def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, shape (N, D). Longer texts are cut at what the model reads, never an error."""
        ...


@dataclass(frozen=True)
class FrameEmbeddings:
    """What is known of one video: T frames in ascending order of their index, D dimensions of an embedding.

    Attributes:
        indices_T: int64, ascending, without duplicates.
        embeddings_TD: float32.
    """

    indices_T: npt.NDArray[np.int64]
    embeddings_TD: npt.NDArray[np.float32]

    @classmethod
    def none(cls) -> FrameEmbeddings:
        """Nothing known yet."""
        return cls(np.empty(0, np.int64), np.empty((0, 0), np.float32))

    @property
    def nbytes(self) -> int:
        return self.indices_T.nbytes + self.embeddings_TD.nbytes

    def missing(self, indices: Sequence[int]) -> list[int]:
        """Those of `indices` that are not known, ascending."""
        missing: list[int] = np.setdiff1d(indices, self.indices_T).tolist()
        return missing

    def of(self, indices: Sequence[int]) -> npt.NDArray[np.float32]:
        """Rows for `indices`, all of which are known."""
        return self.embeddings_TD[np.searchsorted(self.indices_T, indices)]

    def joined_with(self, other: FrameEmbeddings) -> FrameEmbeddings:
        """These, and those frames of the other that are not among them."""
        if not len(self.indices_T):
            return other
        # Of a frame that both have, the first one's row.
        indices_T, rows = np.unique(np.concatenate([self.indices_T, other.indices_T]), return_index=True)
        return FrameEmbeddings(indices_T, np.concatenate([self.embeddings_TD, other.embeddings_TD])[rows])


class EmbeddingCache:
    """Embeddings by video, up to so many bytes; the least recently used video goes first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._videos: OrderedDict[str, FrameEmbeddings] = OrderedDict()
        self.stored_bytes = 0

    def get(self, digest: str) -> FrameEmbeddings | None:
        if digest in self._videos:
            self._videos.move_to_end(digest)
        return self._videos.get(digest)

    def put(self, digest: str, kept: FrameEmbeddings) -> None:
        """Keep what is known of a video in place of what was before; one larger than the whole cache is not kept."""
        known = self._videos.pop(digest, None)
        self.stored_bytes += kept.nbytes - (known.nbytes if known is not None else 0)
        self._videos[digest] = kept
        while self.stored_bytes > self._capacity_bytes:
            _, dropped = self._videos.popitem(last=False)
            self.stored_bytes -= dropped.nbytes


class TextBatcher:
    """Gathers texts that are asked for at the same time, and those that come while a batch is under way.

    For one event loop.

    Args:
        encode: embeddings (N, D) of N texts.
    """

    def __init__(self, encode: Callable[[list[str]], Awaitable[npt.NDArray[np.float32]]]) -> None:
        self._encode = encode
        self._waiting: dict[str, list[asyncio.Future[npt.NDArray[np.float32]]]] = {}
        self._worker: asyncio.Task[None] | None = None

    async def embedding(self, text: str) -> npt.NDArray[np.float32]:
        """Embedding of one text, shape (D,). The same text, asked for twice in a batch, is encoded once.

        Raises:
            what `encode` raises, for every text of its batch.
        """
        future: asyncio.Future[npt.NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(text, []).append(future)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            if len(self._waiting) < _TEXT_BATCH_SIZE:
                await asyncio.sleep(_MAX_WAIT_SECONDS)
            batch = {text: self._waiting.pop(text) for text in list(self._waiting)[:_TEXT_BATCH_SIZE]}
            # Whoever gave up meanwhile has cancelled their future.
            asked = {text: [future for future in futures if not future.done()] for text, futures in batch.items()}
            asked = {text: futures for text, futures in asked.items() if futures}
            if asked:
                await self._answer(asked)

    async def _answer(self, asked: dict[str, list[asyncio.Future[npt.NDArray[np.float32]]]]) -> None:
        try:
            embeddings_ND = await self._encode(list(asked))
        except Exception as error:
            for future in (future for futures in asked.values() for future in futures if not future.done()):
                future.set_exception(error)
            return
        for embedding_D, futures in zip(embeddings_ND, asked.values(), strict=True):
            for future in futures:
                if not future.done():
                    future.set_result(embedding_D)


class RetrievalService:
    """A `core.types.Retriever` with an encoder of its own.

    Args:
        encoder: runs in one thread of the service.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vvt-encoder")
        self._texts = TextBatcher(self._encode_texts)
        self._memory = EmbeddingCache(MEMORY_BYTES)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(_VIDEOS_AT_ONCE)

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """As `core.types.Retriever.best_frames`."""
        end = time.monotonic() + deadline_seconds
        try:
            async with asyncio.timeout(deadline_seconds) as timeout:
                return await self._best_frames(video_path, candidates, text, num_frames, end)
        except TimeoutError as error:
            if not timeout.expired():  # a decoder's DeadlineError
                raise
            raise RetrievalError(
                f"{video_path}: {len(candidates)} frames were not searched within {deadline_seconds} s"
            ) from error

    # ------------------------------------------------------------------------------------------------------- internals

    async def _best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, end: float
    ) -> list[int]:
        shown, places = np.unique(np.asarray(candidates, np.int64), return_inverse=True)
        # A query that fails on its text has its frames encoded all the same: the next one will want them.
        text_D, known = await asyncio.gather(
            self._texts.embedding(text), self._embeddings(video_path, shown.tolist(), end)
        )
        similarities = np.round(known.of(shown.tolist()) @ text_D, _SIMILARITY_DECIMALS)[places]
        best = np.argsort(-similarities, kind="stable")[:num_frames]
        return [int(candidates[place]) for place in best]

    async def _embeddings(self, video_path: str, indices: Sequence[int], end: float) -> FrameEmbeddings:
        """Embeddings of at least these frames; each is encoded once, however many queries wait for it."""
        digest = (await identify(video_path, _left_seconds(end))).digest
        known = self._memory.get(digest)
        if known is not None and not known.missing(indices):
            return known
        lock = self._locks.setdefault(digest, asyncio.Lock())
        async with lock:
            known = self._memory.get(digest) or FrameEmbeddings.none()
            missing = known.missing(indices)
            if missing:
                async with self._slots:
                    video = await open_video(video_path, _left_seconds(end))
                    for start in range(0, len(missing), _IMAGE_BATCH_SIZE):
                        batch = missing[start : start + _IMAGE_BATCH_SIZE]
                        known = known.joined_with(await self._encoded(video, batch, end))
                        self._memory.put(digest, known)  # at once: after a deadline the next query goes on from here
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
        return FrameEmbeddings(np.asarray(indices, np.int64), embeddings_TD)

    async def _encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        return await self._on_encoder(self._encoder.encode_texts, texts)

    async def _on_encoder(self, function: Callable[[Input], Result], argument: Input) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, argument)
        except Exception as error:
            raise RetrievalError(f"the encoder failed: {type(error).__name__}: {error}") from error


def centre_part(width: int, height: int) -> PixelBox | None:
    """The middle of a very elongated frame, whose ends an encoder that crops the centre never sees; None: all of it.

    Resized as a whole, a frame of 8192x2 pixels would cover 917,504x224.
    """
    longest = MAX_CENTRE_ASPECT * min(width, height)
    left, top = max(0, width - longest) // 2, max(0, height - longest) // 2  # alike at both ends: the centre stays
    return PixelBox(left, top, width - left, height - top) if left or top else None


def _left_seconds(end: float) -> float:
    return max(0.0, end - time.monotonic())


def local(config: RetrievalConfig) -> RetrievalService:
    """A service in this process, for one event loop; loads the encoder, which takes seconds.

    Raises:
        SetupError, UsageError: as `load_encoder`.
    """
    from verl_video_tools.services.encoders import load_encoder

    return RetrievalService(load_encoder(config))


def local_from_fields(fields: Mapping[str, Any]) -> RetrievalService | None:
    """`local` with the options of a command line; None without any.

    Raises:
        UsageError: an unknown field or a wrong value; else as `local`.
    """
    return local(RetrievalConfig.from_fields(fields)) if fields else None


class RecordingRetriever:
    """A `core.types.Retriever` that notes another's answers.

    Args:
        retriever: asked.
        answers: each answer is appended to it.
    """

    def __init__(self, retriever: Retriever, answers: list[list[int]]) -> None:
        self._retriever = retriever
        self._answers = answers

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        best = await self._retriever.best_frames(video_path, candidates, text, num_frames, deadline_seconds)
        self._answers.append(list(best))
        return best


def recorded_answers(trajectory: Trajectory) -> list[list[int]]:
    """What the retriever answered in a rollout, in order: the argument of `RecordedRetriever`."""
    of_calls = [answer for call in trajectory.calls() for answer in call.retrieved_frames]
    return [*trajectory.retrieved_frames, *of_calls]


class RecordedRetriever:
    """A `core.types.Retriever` that gives recorded answers in their order.

    Args:
        answers: frame indices, the best one first, one list per query (`recorded_answers`).
    """

    def __init__(self, answers: Iterable[Sequence[int]]) -> None:
        self._answers = iter([list(answer) for answer in answers])

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """The next recorded answer.

        Raises:
            RetrievalError: there is none, or it is no answer to this query: the rollout does not replay.
        """
        answer = next(self._answers, None)
        if answer is None:
            raise RetrievalError(f"no frames are recorded for {text!r}; export the rollout again from its record")
        if len(answer) != min(num_frames, len(candidates)) or not set(answer) <= set(candidates):
            raise RetrievalError(
                f"the frames recorded next, {answer}, are not {num_frames} of the {len(candidates)} candidates for "
                f"{text!r}; export the rollout again with these settings"
            )
        return answer
