"""Frames decoded by decord (https://github.com/dmlc/decord), unmaintained since 2021, in a process of its own.

What it gets wrong, and what comes instead of wrong frames:

- frames hidden by an edit list, and those before a recording's first key frame, are counted: its number of frames
  differs, `BackendError` for the file;
- containers without times of their own (AVI, MPEG program streams): its times differ, `BackendError`;
- groups of pictures that do not begin with the frame shown first (open groups, usual for x265), or that do not begin
  with a real key frame: it is some frames off after a seek, `BackendError` for frames in such a group;
- VP9 fails on many seeks, AV1 and Matroska files without an index cannot be opened: `BackendError`;
- in MPEG-TS and other containers without an index its seeks land elsewhere, or hang: `BackendError` for the file;
- a damaged stretch shifts its count: where FFmpeg complains while decoding, `BackendError`.

Frames by time are right also where the frame rate varies, since times are not its business here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np

from verl_video_tools.core.errors import BackendError, DeadlineError, SetupError
from verl_video_tools.video.child_process import ChildDied, ChildProcess
from verl_video_tools.video.readers import FrameReader
from verl_video_tools.video.source import Deadline, VideoSource

CHILD_PROGRAM = Path(__file__).with_name("decord_child.py")

LIMIT_SECONDS = 60.0
"""Time for one frame where the caller sets none."""

INDEXED_CONTAINERS = frozenset({"mov", "matroska"})

TOLERANCE_SECONDS = 1e-3
FLOAT32_TOLERANCE = 1e-7
"""decord reports times as float32."""


class DecordBackend:
    """A `FrameDecoder` that asks a child process; one that was killed is started again at the next request.

    Raises:
        SetupError: decord is not installed.
        BackendError: decord's seeks are wrong in such a container.
    """

    def __init__(self, source: VideoSource, reader: FrameReader) -> None:
        if importlib.util.find_spec("decord") is None:
            raise SetupError("the backend 'decord' needs decord==0.6.0: install the extra 'decord' of this package")
        self._path = source.path
        self._time_base = source.time_base
        self._reader = reader
        self._child: ChildProcess | None = None
        if not source.container_names & INDEXED_CONTAINERS:
            raise self._error(f"its seeks miss in {'/'.join(sorted(source.container_names))} files")

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        for index in indices:
            if not self._reader.is_in_closed_group(index, deadline):
                raise self._error(f"frame {index} is in a group of pictures where decord miscounts")
        for index in indices:
            frame_deadline = deadline
            if deadline.left_seconds() is None:
                frame_deadline = Deadline(LIMIT_SECONDS, f"{self._path}: decord: decode frame {index}")
            try:
                yield index, self._frame(index, frame_deadline)
            except (ChildDied, DeadlineError) as error:
                self.close()
                if isinstance(error, ChildDied):
                    raise self._error(str(error)) from error
                raise

    def _frame(self, index: int, deadline: Deadline) -> av.VideoFrame:
        if self._child is None:
            self._child = self._start(deadline)
        answer = self._ask(self._child, {"index": index}, deadline)
        height, width, num_colours = answer["shape"]
        data = self._child.read_bytes(height * width * num_colours, deadline)
        first_pts, pts = self._reader.pts_at(0, deadline), self._reader.pts_at(index, deadline)
        seconds, expected_seconds = answer["seconds"], float((pts - first_pts) * self._time_base)
        if not abs(seconds - expected_seconds) < TOLERANCE_SECONDS + FLOAT32_TOLERANCE * expected_seconds:
            raise self._error(f"for frame {index}, at {expected_seconds} s, it gives the one at {seconds} s")
        if complaint := self._child.take_error_text():
            raise self._error(f"trouble near frame {index}, after which it may miscount: {complaint.splitlines()[0]}")
        pixels_HWC = np.frombuffer(data, dtype=np.uint8).reshape(height, width, num_colours)
        return av.VideoFrame.from_ndarray(pixels_HWC, format="rgb24")

    def _start(self, deadline: Deadline) -> ChildProcess:
        child = ChildProcess([sys.executable, "-P", str(CHILD_PROGRAM)])
        answer = self._ask(child, {"path": str(self._path.absolute())}, deadline)
        if answer["num_frames"] != self._reader.num_frames:
            raise self._error(f"it counts {answer['num_frames']} frames where {self._reader.num_frames} are shown")
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
        return BackendError(f"{self._path}: decord: {what}; use the backend 'pyav' for this file")
