"""Ways to read frames, ours and others', behind one interface: the frames of a request at 588 x 336.

Others' packages are imported when their reader is made, so that a missing one is told by name and nothing else fails.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.video.requests import HEIGHT, WIDTH, Request
from verl_video_tools import __version__

Frames = npt.NDArray[np.generic]
"""Axes T, H, W, C."""

OUR_VERSION = f"verl_video_tools {__version__}"


class Reader(Protocol):
    """One way to read frames.

    Attributes:
        version: name and version of the package that does the work.
    """

    version: str

    def read(self, request: Request) -> Frames: ...


class Ours:
    """`Video`, opened for every request (cold) or kept open (warm)."""

    def __init__(self, keep_open: bool) -> None:
        from verl_video_tools.video import Video

        self.version = OUR_VERSION
        self._open = _opener(Video, keep_open)

    def read(self, request: Request) -> Frames:
        return self._open(request.path).frames_at(request.seconds, HEIGHT, WIDTH).frames_THWC


class QwenVlUtils:
    """`fetch_video` of qwen-vl-utils as it comes: which reader it takes is its own choice, `version` tells it."""

    def __init__(self) -> None:
        from qwen_vl_utils import vision_process

        self._fetch_video = vision_process.fetch_video
        backend = vision_process.get_video_reader_backend()
        importlib.import_module(
            "torchcodec.decoders" if backend == "torchcodec" else backend
        )  # else the first read does
        # When its reader fails, it silently takes torchvision's, which decodes the whole file.
        vision_process.VIDEO_READER_BACKENDS["torchvision"] = vision_process.VIDEO_READER_BACKENDS[backend]
        self.version = f"qwen-vl-utils {_version('qwen-vl-utils')} with {backend} {_version(backend)}"

    def read(self, request: Request) -> Frames:
        fps = _constant_fps(request)
        first, last = request.indices[0], max(request.indices[-1], request.indices[0] + 1)  # not less than 2 frames
        frames = self._fetch_video(
            {
                "video": request.path,
                "video_start": (first - 0.1) / fps,
                "video_end": (last + 0.1) / fps,
                "nframes": max(2, len(request.indices)),
                "resized_height": HEIGHT,
                "resized_width": WIDTH,
            }
        )
        return frames.permute(0, 2, 3, 1).numpy()[: len(request.indices)]


class TorchCodec:
    """torchcodec in exact mode by indices, one thread, scaled by the decoder."""

    def __init__(self, keep_open: bool) -> None:
        from torchcodec.decoders import VideoDecoder
        from torchcodec.transforms import Resize

        self.version = f"torchcodec {_version('torchcodec')}"

        def open_decoder(path: str) -> Any:
            return VideoDecoder(
                path,
                dimension_order="NHWC",
                num_ffmpeg_threads=1,
                seek_mode="exact",
                transforms=[Resize((HEIGHT, WIDTH))],
            )

        self._open = _opener(open_decoder, keep_open)

    def read(self, request: Request) -> Frames:
        return self._open(request.path).get_frames_at(list(request.indices)).data.numpy()


class Decord:
    """decord by indices, opened for every request, threads as it likes, scaled by the decoder."""

    def __init__(self) -> None:
        from decord import VideoReader

        self._video_reader = VideoReader
        self.version = f"decord {_version('decord')}"

    def read(self, request: Request) -> Frames:
        reader = self._video_reader(request.path, width=WIDTH, height=HEIGHT)
        return reader.get_batch(list(request.indices)).asnumpy()


READERS: dict[str, Callable[[], Reader]] = {
    "ours_cold": lambda: Ours(keep_open=False),
    "ours_warm": lambda: Ours(keep_open=True),
    "qwen": QwenVlUtils,
    "torchcodec_cold": lambda: TorchCodec(keep_open=False),
    "torchcodec_warm": lambda: TorchCodec(keep_open=True),
    "decord": Decord,
}
"""By name; `ours_shared` is the one other way, see `SharedReader`."""


class SharedReader:
    """`open_video` and `decode_frames`: decode threads and caches as rollouts use them."""

    DEADLINE_SECONDS = 300.0

    def __init__(self) -> None:
        from verl_video_tools import video

        self._video = video
        self.version = OUR_VERSION

    async def read(self, request: Request) -> Any:
        """A `FrameBatch`."""
        video = await self._video.open_video(request.path, self.DEADLINE_SECONDS)
        frames = self._video.FrameRequest(WIDTH, HEIGHT, seconds=request.seconds)
        return await self._video.decode_frames(video, frames, self.DEADLINE_SECONDS)

    async def read_rollouts(self, rollouts: list[list[Request]], take: Callable[[Any], Any]) -> list[list[Any]]:
        """Every rollout at the same time, its requests one after the other; keeps what `take` takes of each batch."""

        async def rollout(requests: list[Request]) -> list[Any]:
            return [take(await self.read(request)) for request in requests]

        return await asyncio.gather(*(rollout(requests) for requests in rollouts))


def _opener(open_file: Callable[[str], Any], keep_open: bool) -> Callable[[str], Any]:
    opened: dict[str, Any] = {}

    def get(path: str) -> Any:
        if not keep_open:
            return open_file(path)
        if path not in opened:
            opened[path] = open_file(path)
        return opened[path]

    return get


def _constant_fps(request: Request) -> float:
    return (request.indices[-1] + 0.5) / request.seconds[-1]


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)
