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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import Box, FrameRequest, PixelBox, RecordedByCall, Region, Retriever, Trajectory
from verl_video_tools.services.config import RetrievalConfig as RetrievalConfig
from verl_video_tools.video import Video, decode_frames, open_video
from verl_video_tools.video.decoding import identify
from verl_video_tools.video.video import FileIdentity

Input = TypeVar("Input")
Result = TypeVar("Result")

MEMORY_BYTES = 1 << 30
"""Largest size of all embeddings in memory; a frame takes 2 to 5 kB. The least recently used video is evicted."""
_VIDEOS_AT_ONCE = 8
"""Videos whose frames are decoded at the same time: bounds the images in memory."""
_IMAGE_BATCH_SIZE = 32
"""Frames decoded and encoded at a time."""
_SIMILARITY_DECIMALS = 5
"""Cosines are compared to so many decimals: the same image, encoded in another batch, differs in the seventh."""

MAX_CENTRE_ASPECT = 16
"""Of frames whose centre is cropped: more elongated ones are cut to it first. Videos people watch stay whole."""


class Encoder(Protocol):
    """Encodes frames and texts as vectors of one space. One thread at a time calls it."""

    @property
    def crops_centre(self) -> bool:
        """Whether the encoder sees only the middle square of a frame (`covering_size`), or all of it, squeezed to a
        square."""
        ...

    def image_size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height at which to decode a video of this size, so that the encoder does not have to resize."""
        ...

    def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, shape (T, D)."""
        ...

    def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, shape (N, D). A text that is too long for the model is cut."""
        ...


Embeddings = dict[int, npt.NDArray[np.float32]]
"""Those of one video: the embedding (D,) of a frame by its index."""


class RetrievalService:
    """A `core.types.Retriever` with its own encoder.

    Args:
        encoder: runs in one thread of the service.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vvt-encoder")
        self._videos: OrderedDict[FileIdentity, Embeddings] = OrderedDict()
        self._locks: WeakValueDictionary[FileIdentity, asyncio.Lock] = WeakValueDictionary()
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
        if not candidates:
            return []
        # A query that fails on its text has its frames encoded all the same: the next one will want them.
        text_1D, embeddings = await asyncio.gather(
            self._on_encoder(self._encoder.encode_texts, [text]), self._embeddings(video_path, candidates, end)
        )
        embeddings_TD = np.stack([embeddings[index] for index in candidates])
        similarities = np.round(embeddings_TD @ text_1D[0], _SIMILARITY_DECIMALS)
        best = np.argsort(-similarities, kind="stable")[:num_frames]
        return [int(candidates[place]) for place in best]

    async def _embeddings(self, video_path: str, indices: Sequence[int], end: float) -> Embeddings:
        """Embeddings of at least these frames; each is encoded once, however many queries wait for it."""
        file = await identify(video_path, _left_seconds(end))
        embeddings = self._videos.setdefault(file, {})
        self._videos.move_to_end(file)
        if embeddings.keys() >= set(indices):
            return embeddings
        async with self._locks.setdefault(file, asyncio.Lock()):
            missing = sorted(set(indices) - embeddings.keys())
            async with self._slots:
                video = await open_video(video_path, _left_seconds(end))
                for start in range(0, len(missing), _IMAGE_BATCH_SIZE):
                    batch = missing[start : start + _IMAGE_BATCH_SIZE]
                    rows_TD = await self._encoded(video, batch, end)
                    # Kept at once: after a deadline the next query goes on from here.
                    embeddings.update(zip(batch, rows_TD, strict=True))
                    self._forget_oldest(rows_TD[0].nbytes)
        return embeddings

    def _forget_oldest(self, row_bytes: int) -> None:
        while sum(map(len, self._videos.values())) * row_bytes > MEMORY_BYTES:
            self._videos.popitem(last=False)

    async def _encoded(self, video: Video, indices: Sequence[int], end: float) -> npt.NDArray[np.float32]:
        """Embeddings of frames, given in ascending order."""
        part = centre_part(video.info.width, video.info.height) if self._encoder.crops_centre else None
        shown = (video.info.width, video.info.height) if part is None else (part.width, part.height)
        region = None if part is None else Region(Box(*part))
        request = FrameRequest(*self._encoder.image_size(*shown), indices=tuple(indices), region=region)
        batch = await decode_frames(video, request, _left_seconds(end))
        return await self._on_encoder(self._encoder.encode_images, batch.frames_THWC)

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
    """A service in this process, for one event loop. Loading the encoder takes seconds.

    Raises:
        SetupError, UsageError: as `load_encoder`.
    """
    from verl_video_tools.services.encoders import load_encoder

    return RetrievalService(load_encoder(config))


def local_from_fields(fields: Mapping[str, Any]) -> RetrievalService | None:
    """`local` with the options of a command line; None if there are no options.

    Raises:
        UsageError: an unknown field or a wrong value; otherwise as `local`.
    """
    return local(RetrievalConfig.from_fields(fields)) if fields else None


class RecordingRetriever:
    """A `core.types.Retriever` that records the answers of another one.

    Args:
        retriever: finds the frames.
        answers: each answer is appended to this list.
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


def recorded_answers(trajectory: Trajectory) -> list[list[list[int]]]:
    """The answers of the retriever in a rollout: for its initial frames, then for each call; [] if it was not asked."""
    answers = [trajectory.retrieved_frames, *(call.retrieved_frames for call in trajectory.calls())]
    return answers if any(answers) else []


class RecordedRetriever:
    """A `core.types.Retriever` that returns the recorded answers of one call in their order.

    Args:
        answers: one list per query of frame indices, the best first.
    """

    def __init__(self, answers: Iterable[Sequence[int]]) -> None:
        self._answers = iter([list(answer) for answer in answers])

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """The next recorded answer.

        Raises:
            RetrievalError: there is no further answer, or the next one belongs to another query, so the rollout cannot
                be replayed.
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


def recorded_retriever(answers: Sequence[Sequence[Sequence[int]]]) -> RecordedByCall[Retriever]:
    """What stands in for the retriever where a rollout is replayed.

    Args:
        answers: as `recorded_answers` gives them.
    """
    return RecordedByCall(lambda number: RecordedRetriever(answers[number] if number < len(answers) else ()))
