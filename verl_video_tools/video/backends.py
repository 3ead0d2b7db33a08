"""Which program decodes packets into frames: PyAV, torchcodec or decord.

When each frame is shown, and which index it has, always comes from the packets as PyAV reads them. Another backend only
delivers the frames that are named to it, at their own size and upright; the same code scales all of them. Its times are
checked against those of the packets: a miscount is a `BackendError`, not a wrong frame.

pyav        exact on every kind of file, replaces frames whose damage FFmpeg notices; the default
torchcodec  exact mode, frames by index; decodes in this process, so that native code cannot be interrupted. It reports
            no damage: a patched-up frame comes as if it were sound
decord      in a child process with a time limit, since it can hang while it holds the GIL; unmaintained since 2021
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, cast, get_args

import av
import numpy as np

from verl_video_tools.core.errors import BackendError, DeadlineError, SetupError, UsageError
from verl_video_tools.video.child_process import ChildDied, ChildProcess
from verl_video_tools.video.reader import FrameReader
from verl_video_tools.video.source import Deadline, VideoSource

BackendName = Literal["pyav", "torchcodec", "decord"]

BACKEND_VARIABLE = "VVT_VIDEO_BACKEND"
"""Environment variable: the backend of a process, where none is named."""

TORCHCODEC_FRAMES_PER_CALL = 8
"""Bounds what is held at full size; between calls the deadline is checked."""

DECORD_SECONDS = 60.0
"""Time for one frame of decord where the caller sets none."""

DECORD_CONTAINERS = frozenset({"mov", "matroska"})

TOLERANCE_SECONDS = 1e-3
FLOAT32_TOLERANCE = 1e-7
"""decord reports times as float32."""


class Backend(Protocol):
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
        """Free the file and the decoder; decoding after that opens them anew."""
        ...


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


def open_backend(name: BackendName, source: VideoSource, reader: FrameReader, deadline: Deadline) -> Backend | None:
    """The decoder of a backend for an opened file; None for "pyav", which the reader itself uses.

    Raises:
        SetupError: what the backend needs is not installed.
        BackendError: the backend cannot open the file, or would show it in mirror writing.
    """
    if name == "pyav":
        return None
    if reader.is_mirrored:  # decord goes by the angle of the display matrix alone; torchcodec depends on its FFmpeg
        raise _error(source, name, "the display matrix mirrors the image, which it may not do")
    return _Torchcodec(source, reader) if name == "torchcodec" else _Decord(source, reader, deadline)


def _error(source: VideoSource, name: BackendName, what: str) -> BackendError:
    return BackendError(f"{source.path}: {name}: {what}; use the backend 'pyav' for this file")


class _Torchcodec:
    """https://github.com/meta-pytorch/torchcodec"""

    def __init__(self, source: VideoSource, reader: FrameReader) -> None:
        self._source, self._index = source, reader.index
        self._stream_index = source.stream.index
        self._decoder: Any = self._opened()

    def _opened(self) -> Any:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError) as error:
            raise SetupError(
                "the backend 'torchcodec' needs torchcodec==0.13.0 (extra 'torchcodec' of this package) and the shared "
                f"libraries of FFmpeg 4 to 8; `vvt doctor` tells which is missing: {str(error).strip().splitlines()[0]}"
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
            raise _error(self._source, "torchcodec", f"cannot open the file: {error}") from error

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        self._decoder = self._decoder or self._opened()
        time_base = self._source.time_base
        for start in range(0, len(indices), TORCHCODEC_FRAMES_PER_CALL):
            requested = list(indices[start : start + TORCHCODEC_FRAMES_PER_CALL])
            deadline.check()
            try:
                batch = self._decoder.get_frames_at(requested)
            except (RuntimeError, ValueError, IndexError) as error:
                raise _error(self._source, "torchcodec", f"cannot decode frames {requested}: {error}") from error
            for index, seconds, pixels_HWC in zip(requested, batch.pts_seconds.tolist(), batch.data, strict=True):
                expected_seconds = float(int(self._index.frame_pts[index]) * time_base)
                if abs(seconds - expected_seconds) >= time_base / 2:
                    what = f"for frame {index}, at {expected_seconds} s, it gives the one at {seconds} s"
                    raise _error(self._source, "torchcodec", what)
                yield index, av.VideoFrame.from_ndarray(pixels_HWC.numpy(), format="rgb24")

    def close(self) -> None:
        self._decoder = None


class _Decord:
    """https://github.com/dmlc/decord, which gets wrong, so that a `BackendError` comes instead of a frame:

    - frames hidden by an edit list, and those before a recording's first key frame, are counted;
    - groups of pictures that do not begin with the frame shown first (usual for x265), or with a real key frame: it is
      some frames off after a seek;
    - in containers without times or index (AVI, MPEG-TS) its times differ and its seeks land elsewhere, or hang;
    - VP9 fails on many seeks, AV1 and Matroska files without an index cannot be opened;
    - a damaged stretch shifts its count: where FFmpeg complains while decoding, it is not believed.

    A child process that was killed is started again at the next request.
    """

    def __init__(self, source: VideoSource, reader: FrameReader, deadline: Deadline) -> None:
        if importlib.util.find_spec("decord") is None:
            raise SetupError("the backend 'decord' needs decord==0.6.0: install the extra 'decord' of this package")
        self._source, self._reader = source, reader
        if not source.container_names & DECORD_CONTAINERS:
            raise self._error(f"its seeks miss in {'/'.join(sorted(source.container_names))} files")
        self._child: ChildProcess | None = self._start(self._bounded(deadline, "open"))

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        index_of_frames = self._reader.index
        for index in indices:
            if not index_of_frames.is_closed(int(index_of_frames.groups[index])):
                raise self._error(f"frame {index} is in a group of pictures where decord miscounts")
        for index in indices:
            try:
                yield index, self._frame(index, self._bounded(deadline, f"decode frame {index}"))
            except (ChildDied, DeadlineError) as error:
                self.close()
                if isinstance(error, ChildDied):
                    raise self._error(str(error)) from error
                raise

    def _bounded(self, deadline: Deadline, what: str) -> Deadline:
        if deadline.left_seconds() is not None:
            return deadline
        return Deadline(DECORD_SECONDS, f"{self._source.path}: decord: {what}")

    def _frame(self, index: int, deadline: Deadline) -> av.VideoFrame:
        if self._child is None:
            self._child = self._start(deadline)
        answer = self._ask(self._child, {"index": index}, deadline)
        height, width, num_colours = answer["shape"]
        data = self._child.read_bytes(height * width * num_colours, deadline)
        first_pts, pts = (int(self._reader.index.frame_pts[number]) for number in (0, index))
        seconds, expected_seconds = answer["seconds"], float((pts - first_pts) * self._source.time_base)
        if not abs(seconds - expected_seconds) < TOLERANCE_SECONDS + FLOAT32_TOLERANCE * expected_seconds:
            raise self._error(f"for frame {index}, at {expected_seconds} s, it gives the one at {seconds} s")
        if complaint := self._child.take_error_text():
            raise self._error(f"trouble near frame {index}, after which it may miscount: {complaint.splitlines()[0]}")
        pixels_HWC = np.frombuffer(data, dtype=np.uint8).reshape(height, width, num_colours)
        return av.VideoFrame.from_ndarray(pixels_HWC, format="rgb24")

    def _start(self, deadline: Deadline) -> ChildProcess:
        child = ChildProcess([sys.executable, "-P", "-m", __name__])
        answer = self._ask(child, {"path": str(self._source.path.absolute())}, deadline)
        if answer["num_frames"] != len(self._reader.index):
            raise self._error(f"it counts {answer['num_frames']} frames where {len(self._reader.index)} are shown")
        child.take_error_text()
        return child

    def _ask(self, child: ChildProcess, request: Mapping[str, object], deadline: Deadline) -> dict[str, Any]:
        answer = child.ask({**request, "limit_seconds": (deadline.left_seconds() or 0.0) + 1.0}, deadline)
        if "error" in answer:
            raise self._error(answer["error"])
        return answer

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _error(self, what: str) -> BackendError:
        return _error(self._source, "decord", what)


def run_decord() -> None:
    """The child process: one JSON line per request on standard input, an answer on standard output.

    Requests are ``{"path": str, "limit_seconds": float}``, once, and ``{"index": int, "limit_seconds": float}``;
    answers hold ``error``, or what was asked. A picture's bytes follow its answer. A request that takes longer than its
    limit ends the process, even if nobody is left to kill it.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers

    def answer(content: dict[str, object], picture: bytes = b"") -> None:
        answers.write(json.dumps(content).encode() + b"\n" + picture)
        answers.flush()

    video = None
    first_seconds = 0.0
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["limit_seconds"])  # its signal ends the process by default
        try:
            if video is None:
                import decord

                video = decord.VideoReader(request["path"], ctx=decord.cpu(0), num_threads=1)
                first_seconds = float(video.get_frame_timestamp([0])[0][0])
                answer({"num_frames": len(video)})
            else:
                index = request["index"]
                seconds = float(video.get_frame_timestamp([index])[0][0]) - first_seconds
                pixels_HWC = video[index].asnumpy()
                answer({"seconds": seconds, "shape": pixels_HWC.shape}, pixels_HWC.tobytes())
        except Exception as error:
            answer({"error": " ".join(str(error).split())})
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    run_decord()
