"""Frames decoded by torchcodec (https://github.com/meta-pytorch/torchcodec), in exact mode and by index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import av

from verl_video_tools.core.errors import BackendError, SetupError
from verl_video_tools.video.readers import FrameReader
from verl_video_tools.video.source import Deadline, VideoSource

FRAMES_PER_CALL = 8
"""Bounds what is held at full size; between calls the deadline is looked at."""


class TorchcodecBackend:
    """A `FrameDecoder`. torchcodec reports the time of each frame decoded, and that must be the time in the packets.

    It uses the FFmpeg of the system, and tells nothing of damage: a patched-up frame comes as if it were sound.

    Raises:
        SetupError: torchcodec is not installed or finds no FFmpeg.
        BackendError: torchcodec cannot open the file.
    """

    def __init__(self, source: VideoSource, reader: FrameReader) -> None:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError) as error:
            raise SetupError(
                "the backend 'torchcodec' needs torchcodec==0.13.0 (extra 'torchcodec' of this package) and the shared "
                f"libraries of FFmpeg 4 to 8; `vvt doctor` tells which is missing: {str(error).strip().splitlines()[0]}"
            ) from error
        self._path = source.path
        self._time_base = source.time_base
        self._reader = reader
        self._open = partial(
            VideoDecoder,
            str(source.path.absolute()),
            stream_index=source.stream.index,
            dimension_order="NHWC",
            num_ffmpeg_threads=1,
            seek_mode="exact",
        )
        self._decoder: Any = self._opened()

    def _opened(self) -> Any:
        try:
            return self._open()
        except (RuntimeError, ValueError) as error:
            raise self._error(f"cannot open the file: {error}") from error

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        if self._decoder is None:
            self._decoder = self._opened()
        for start in range(0, len(indices), FRAMES_PER_CALL):
            asked = list(indices[start : start + FRAMES_PER_CALL])
            deadline.check()
            try:
                batch = self._decoder.get_frames_at(asked)
            except (RuntimeError, ValueError, IndexError) as error:
                raise self._error(f"cannot decode frames {asked}: {error}") from error
            for index, seconds, pixels_HWC in zip(asked, batch.pts_seconds.tolist(), batch.data, strict=True):
                expected_seconds = float(self._reader.pts_at(index, deadline) * self._time_base)
                if abs(seconds - expected_seconds) >= self._time_base / 2:
                    raise self._error(f"for frame {index}, at {expected_seconds} s, it gives the one at {seconds} s")
                yield index, av.VideoFrame.from_ndarray(pixels_HWC.numpy(), format="rgb24")

    def close(self) -> None:
        self._decoder = None

    def _error(self, what: str) -> BackendError:
        return BackendError(f"{self._path}: torchcodec: {what}; use the backend 'pyav' for this file")
