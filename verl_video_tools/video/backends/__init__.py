"""Which program decodes packets into frames.

When each frame is shown, and which index it has, always comes from the packets as PyAV reads them. A backend only
delivers the frames that are named to it, at their own size and upright; all are scaled by the same code.
What it delivers is checked against the packets' times: a backend that miscounts gives a `BackendError`, not a wrong
frame.

pyav        exact on every kind of file, replaces frames whose damage FFmpeg notices; the default
torchcodec  exact mode, frames by index; decodes in this process, so that native code cannot be interrupted
decord      in a child process with a time limit, since it can hang while it holds the GIL
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, cast, get_args

import av

from verl_video_tools.core.errors import BackendError, UsageError
from verl_video_tools.video.frame_converter import is_mirrored
from verl_video_tools.video.readers import FrameReader
from verl_video_tools.video.source import Deadline, VideoSource

BackendName = Literal["pyav", "torchcodec", "decord"]

BACKEND_VARIABLE = "VVT_VIDEO_BACKEND"
"""Environment variable: the backend of a process, where none is named."""


class FrameDecoder(Protocol):
    """Decodes frames of one opened file. Not thread-safe."""

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode frames, given by ascending distinct indices.

        Raises:
            BackendError: a frame cannot be delivered, or what was delivered is another one. Frames yielded before are
                right all the same.
            DeadlineError: the time is over.
        """
        ...

    def close(self) -> None:
        """Free what is held; decoding after that gets it anew."""
        ...


def chosen_backend(name: str | None) -> BackendName:
    """The backend of that name; without one, the process's own.

    Raises:
        UsageError: there is no such backend.
    """
    where = "backend"
    if name is None:
        name, where = os.environ.get(BACKEND_VARIABLE) or "pyav", f"environment variable {BACKEND_VARIABLE}"
    if name not in get_args(BackendName):
        raise UsageError(f"{where} must be one of {', '.join(get_args(BackendName))}, got {name!r}")
    return cast(BackendName, name)


def open_backend(name: BackendName, source: VideoSource, reader: FrameReader, deadline: Deadline) -> FrameDecoder:
    """The decoder of a backend for an opened file.

    Raises:
        SetupError: what the backend needs is not installed.
        BackendError: the backend cannot open the file, or would show it in mirror writing.
        DeadlineError: the time is over.
    """
    if name != "pyav":
        _refuse_mirrored(name, source, reader, deadline)
    # Imported here, since each needs something that a plain installation lacks.
    match name:
        case "pyav":
            return reader
        case "torchcodec":
            from verl_video_tools.video.backends.torchcodec_backend import TorchcodecBackend

            return TorchcodecBackend(source, reader)
        case "decord":
            from verl_video_tools.video.backends.decord_backend import DecordBackend

            return DecordBackend(source, reader)


def _refuse_mirrored(name: BackendName, source: VideoSource, reader: FrameReader, deadline: Deadline) -> None:
    """decord goes by the angle of the display matrix alone; what torchcodec does depends on its FFmpeg."""
    for _, frame in reader.decode([0], deadline):
        if is_mirrored(frame):
            raise BackendError(
                f"{source.path}: {name}: the display matrix mirrors the image, which it may not do; "
                "use the backend 'pyav' for this file"
            )
