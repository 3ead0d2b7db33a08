"""Which program decodes packets into frames: PyAV or torchcodec.

When each frame is shown, and which index it has, always comes from the packets as PyAV reads them. torchcodec only
delivers the frames that are named to it, at their own size and upright; the same code scales all of them. Its times are
checked against those of the packets: a miscount is a `BackendError`, not a wrong frame.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast, get_args

import av

from verl_video_tools.core.errors import BackendError, SetupError, UsageError
from verl_video_tools.video.reader import FrameReader
from verl_video_tools.video.source import Deadline, VideoSource

BackendName = Literal["pyav", "torchcodec"]

BACKEND_VARIABLE = "VVT_VIDEO_BACKEND"
"""Environment variable: the backend of a process, where none is named."""

TORCHCODEC_FRAMES_PER_CALL = 8
"""Bounds what is held at full size. The deadline is checked between calls, since native code cannot be interrupted."""


def chosen_backend(name: str | None) -> BackendName:
    """The backend of that name; without one, that of the process.

    Raises:
        UsageError: there is no such backend.
    """
    where = "backend"
    if name is None:
        name, where = os.environ.get(BACKEND_VARIABLE) or "pyav", f"environment variable {BACKEND_VARIABLE}"
    if name not in get_args(BackendName):
        raise UsageError(f"{where} must be one of {', '.join(get_args(BackendName))}, got {name!r}")
    return cast(BackendName, name)


class TorchcodecDecoder:
    """https://github.com/meta-pytorch/torchcodec in exact mode, for one opened file. Not thread-safe.

    It reports no damage: a patched-up frame comes as if it were sound.

    Raises:
        SetupError: torchcodec is not installed, or lacks FFmpeg's libraries.
        BackendError: it cannot open the file, or may show it in mirror writing.
    """

    def __init__(self, source: VideoSource, reader: FrameReader) -> None:
        self._source, self._index = source, reader.index
        self._stream_index = source.stream.index
        if reader.is_mirrored:  # what torchcodec does then depends on its FFmpeg
            raise self._error("the display matrix mirrors the image, which it may not do")
        self._decoder: Any = self._opened()

    def _opened(self) -> Any:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError) as error:
            raise SetupError(
                "the backend 'torchcodec' needs torchcodec==0.13.0 (extra 'torchcodec' of this package) and the shared "
                f"libraries of FFmpeg 4 to 8: {str(error).strip().splitlines()[0]}"
            ) from error
        try:
            return VideoDecoder(
                str(self._source.path.absolute()),
                stream_index=self._stream_index,
                dimension_order="NHWC",
                num_ffmpeg_threads=1,
                seek_mode="exact",
            )
        except (RuntimeError, ValueError) as error:
            raise self._error(f"cannot open the file: {error}") from error

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode frames, given by ascending distinct indices.

        Raises:
            BackendError: a frame cannot be delivered, or what was delivered is another one. Frames yielded before are
                right all the same.
            DeadlineError: the time is over.
        """
        self._decoder = self._decoder or self._opened()
        time_base = self._source.time_base
        for start in range(0, len(indices), TORCHCODEC_FRAMES_PER_CALL):
            requested = list(indices[start : start + TORCHCODEC_FRAMES_PER_CALL])
            deadline.check()
            try:
                batch = self._decoder.get_frames_at(requested)
            except (RuntimeError, ValueError, IndexError) as error:
                raise self._error(f"cannot decode frames {requested}: {error}") from error
            for index, seconds, pixels_HWC in zip(requested, batch.pts_seconds.tolist(), batch.data, strict=True):
                expected_seconds = float(int(self._index.frame_pts[index]) * time_base)
                if abs(seconds - expected_seconds) >= time_base / 2:
                    raise self._error(f"for frame {index}, at {expected_seconds} s, it gives the one at {seconds} s")
                yield index, av.VideoFrame.from_ndarray(pixels_HWC.numpy(), format="rgb24")

    def close(self) -> None:
        """Free the file and the decoder; decoding after that opens them anew."""
        self._decoder = None

    def _error(self, what: str) -> BackendError:
        return BackendError(f"{self._source.path}: torchcodec: {what}; use the backend 'pyav' for this file")
