"""Frames decoded by the ffmpeg program: a process per stretch of video, so that nothing of it can hurt this one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import av

from verl_video_tools.core.errors import BackendError, SetupError
from verl_video_tools.video.containers import WHITELISTS, open_container
from verl_video_tools.video.readers import FrameReader
from verl_video_tools.video.source import Deadline, VideoSource

MAX_FRAMES_PER_CALL = 500
"""Each frame asked for is a term in a filter expression on the command line."""


class FfmpegBackend:
    """A `FrameDecoder`. ffmpeg passes on the frames with the asked times and no others.

    Raises:
        SetupError: there is no program `ffmpeg`.
    """

    def __init__(self, source: VideoSource, reader: FrameReader) -> None:
        program = shutil.which("ffmpeg")
        if program is None:
            raise SetupError("the backend 'ffmpeg' needs the program ffmpeg 4.4 or later on PATH: install FFmpeg")
        self._program = program
        self._path = source.path
        self._stream_index = source.stream.index
        self._time_base = source.time_base
        self._reader = reader

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        for start in range(0, len(indices), MAX_FRAMES_PER_CALL):
            for run in self._reader.runs(indices[start : start + MAX_FRAMES_PER_CALL], deadline):
                missing = dict(run.wanted)
                if run.entry_pts is not None:
                    yield from self._decode_from(run.entry_pts, missing, deadline)
                if missing:  # a seek that landed too late is made good from the start of the file
                    yield from self._decode_from(None, missing, deadline)
                if missing:
                    raise self._error(f"it does not show frame {min(missing.values())}")

    def _decode_from(
        self, entry_pts: int | None, missing: dict[int, int], deadline: Deadline
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield what can be had of `missing` ({pts: index}) from a seek point on, and take it out of there.

        Nothing is had where ffmpeg ends with an error: what it decodes past damage may look like another frame.
        """
        with tempfile.NamedTemporaryFile(prefix="vvt-", suffix=".nut") as file:
            if not self._run(self._command(entry_pts, missing, file.name), deadline):
                return
            try:
                container = open_container(file.name, format="nut")
            except av.InvalidDataError:  # no frame in it
                return
            with container:
                for frame in container.decode(video=0):
                    if frame.pts is None or frame.time_base is None:
                        continue
                    index = missing.pop(round(frame.pts * frame.time_base / self._time_base), None)
                    if index is not None:
                        yield index, frame

    def _command(self, entry_pts: int | None, wanted: Mapping[int, int], target: str) -> list[str]:
        seek = []
        if entry_pts is not None:
            seek = ["-seek_timestamp", "1", "-noaccurate_seek", "-ss", f"{float(entry_pts * self._time_base):.6f}"]
        select = "+".join(f"eq(pts\\,{pts})" for pts in wanted)
        return [
            *(self._program, "-nostdin", "-v", "error", "-y", "-xerror", "-copyts", *seek),
            *(word for name, value in WHITELISTS.items() for word in (f"-{name}", value)),
            *("-threads", "1", "-err_detect", "explode", "-i", f"file:{self._path.absolute()}"),
            *("-map", f"0:{self._stream_index}", "-vf", f"select={select}", "-threads", "1"),
            *("-frames:v", str(len(wanted))),  # so that it ends once it has them all
            *("-c:v", "rawvideo", "-pix_fmt", "rgb24", "-sws_flags", "bicubic+accurate_rnd+full_chroma_int"),
            *("-enc_time_base", f"{self._time_base.numerator}/{self._time_base.denominator}", "-f", "nut", target),
        ]

    def _run(self, command: list[str], deadline: Deadline) -> bool:
        """Whether it ended well."""
        deadline.check()
        try:
            done = subprocess.run(
                command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline.left_seconds()
            )
        except subprocess.TimeoutExpired:
            raise deadline.error() from None
        return done.returncode == 0

    def close(self) -> None:
        """Nothing is kept between calls."""

    def _error(self, what: str) -> BackendError:
        return BackendError(f"{self._path}: ffmpeg: {what}; use the backend 'pyav' for this file")
