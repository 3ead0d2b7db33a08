"""`Video`: the frames of one file, or of many image files, exact in time."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import av
import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import (
    ClosedVideoError,
    FrameRangeError,
    UnreadableVideoError,
    VideoNotFoundError,
    VideoToolsError,
)
from verl_video_tools.core.sample import read_clip
from verl_video_tools.core.types import FrameBatch, FrameRecord, FrameRequest, PixelBox, VideoInfo
from verl_video_tools.video.backends import Backend, chosen_backend, open_backend
from verl_video_tools.video.batch import DecodedFrame, FrameView, batch_of
from verl_video_tools.video.frame_converter import FrameConverter
from verl_video_tools.video.frame_files import FrameFileReader, find_frame_files
from verl_video_tools.video.reader import FrameReader, IndexMismatch, open_reader
from verl_video_tools.video.resize import missing_sides
from verl_video_tools.video.source import MAX_DURATION_SECONDS, NEVER, Deadline, LostFileError, VideoSource

logger = logging.getLogger(__name__)

HALF_WAY_TOLERANCE_SECONDS = 2e-6
"""Keeps float error from taking half way between two frames for nearer to the earlier one."""

CLIP_ROUNDING_SECONDS = 0.0005
"""Names of clips hold milliseconds: a frame that begins at 0.6667 s is the one meant by 0.667."""

EVEN_TOLERANCE_SECONDS = 0.002
"""Frames at a constant rate may be this far from even: containers round times, often to a millisecond."""


class FileIdentity(NamedTuple):
    """A file at one time. A file that is written again has another identity."""

    path: str
    """Absolute, symbolic links resolved."""
    size_bytes: int
    modified_ns: int
    clip: str = ""
    """Which part of the file is meant, in words; empty: all of it."""
    frames: str = ""
    """Digest of the image files, for a video of those."""


def file_identity(path: str | os.PathLike[str]) -> FileIdentity:
    """Identity of the file that is at `path` now, or of a part of the file (`core.sample`).

    Raises:
        VideoNotFoundError: there is no such file.
        UnreadableVideoError: the file system denies access, or `path` is not a valid path.
    """
    clip = read_clip(path)
    part = "" if clip.seconds is None else "{} to {}".format(*clip.seconds)
    try:
        frame_files = find_frame_files(clip)
        resolved = Path(clip.file).resolve()
        status = resolved.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise VideoNotFoundError(f"{path}: no such video file ({error.strerror})") from error
    except OSError as error:
        raise UnreadableVideoError(f"{path}: cannot be read ({error.strerror})") from error
    except (RuntimeError, ValueError) as error:  # a loop of symbolic links, before Python 3.13; a NUL in the path
        raise UnreadableVideoError(f"{path}: cannot be read ({error})") from error
    digest = "" if frame_files is None else frame_files.digest()
    return FileIdentity(str(resolved), status.st_size, status.st_mtime_ns, part, digest)


@contextmanager
def report_as_unreadable(path: Path) -> Iterator[None]:
    """Turn unexpected errors of a block that reads a file into a `VideoError`. The original error is its cause and
    is logged.

    PyAV raises Python's built-in errors for some files. Rollouts and commands handle a `VideoError`. Any other error
    would end the whole group of rollouts without a flag.

    Raises:
        UnreadableVideoError: the block raised an error that is not one of this package.
    """
    try:
        yield
    except VideoToolsError:
        raise
    except IndexMismatch as error:
        raise UnreadableVideoError(str(error)) from error
    except Exception as error:
        message = f"{path}: reading the video failed unexpectedly: {type(error).__name__}: {error}"
        logger.warning("%s", message, exc_info=True)  # it may be a defect of ours, so its traceback must be seen
        raise UnreadableVideoError(message) from error


class Video:
    """Random access to the frames of a video file by time or by index.

    Time 0 is when the first frame is shown, whatever the file's own clock says. Time t shows the frame whose
    presentation interval contains t; the end of the video shows the last frame. Opening makes an index of all frames
    (`video.reader`), so that only pixels need the file afterwards. Several threads may use one object; they take turns.

    Args:
        path: a local file; a folder of images with its rate, or a JSON file that lists images (`video.frame_files`); or
            a part of one (`core.sample`), which then is all that there is to see.
        deadline_seconds: time that opening may take.
        backend: what decodes the frames: "pyav", "torchcodec" or "decord" (see `video.backends`); None takes the
            environment variable VVT_VIDEO_BACKEND, and "pyav" where that is not set. Only "pyav" replaces damaged
            frames: those that FFmpeg notices, and what is predicted from them, up to the next key frame. Much damage
            goes unnoticed in HEVC and VP9, some in H.264, and in AV1 that of the first picture hit. Without
            `is_random_access`, the frames predicted from a damaged one are neither replaced nor marked.

    Raises:
        VideoNotFoundError: there is no such file.
        UnreadableVideoError: the file holds no video that can be decoded; the message has FFmpeg's reason.
        BackendError: the backend cannot decode the file, though "pyav" may.
        DeadlineError: opening took too long.
        UsageError, SetupError: there is no such backend, or what it needs is not installed.
    """

    def __init__(
        self, path: str | os.PathLike[str], deadline_seconds: float | None = None, backend: str | None = None
    ) -> None:
        deadline = Deadline(deadline_seconds, f"{path}: open")
        self.backend = chosen_backend(backend)
        self._lock = threading.Lock()
        self._converter = FrameConverter()
        self.identity = file_identity(path)  # before opening: frames may be shared under an old name, not a new one
        self.path = Path(path)
        clip = read_clip(path)
        self._source: VideoSource | FrameFileReader | None = None
        self._decoder: Backend | None = None
        with report_as_unreadable(self.path):
            frame_files = find_frame_files(clip)
            source = VideoSource(clip.file) if frame_files is None else FrameFileReader(frame_files, deadline)
            try:
                self._time_base = source.time_base
                self._reader = source if isinstance(source, FrameFileReader) else open_reader(source, deadline)
                self._frames = self._frames_of_clip(clip.seconds)
                self.info = self._info(source)
                if isinstance(source, VideoSource) and isinstance(self._reader, FrameReader):
                    # Only now: torchcodec and decord have no limits of their own.
                    self._decoder = open_backend(self.backend, source, self._reader, deadline)
            except BaseException:
                source.close()
                raise
            self._source = source

    def _frames_of_clip(self, clip_seconds: tuple[float, float] | None) -> range:
        """Indices, in the file, of the frames that begin in [start, end)."""
        frame_pts = self._reader.index.frame_pts
        if clip_seconds is None:
            return range(len(frame_pts))
        least = [
            math.ceil(int(frame_pts[0]) + (Fraction(time) - Fraction(CLIP_ROUNDING_SECONDS)) / self._time_base)
            for time in clip_seconds
        ]
        frames = range(*np.searchsorted(frame_pts, least).tolist())
        if not frames:
            raise UnreadableVideoError(f"{self.path}: the file has no frame that begins in this part of it")
        return frames

    def _info(self, source: VideoSource | FrameFileReader) -> VideoInfo:
        index, frames, num_frames = self._reader.index, self._frames, len(self._frames)
        first_pts, last_pts = (int(index.frame_pts[number]) for number in (frames[0], frames[-1]))
        next_pts = int(index.frame_pts[frames.stop]) if frames.stop < len(index) else last_pts + index.last_duration
        duration = next_pts - last_pts
        if duration <= 0 and num_frames > 1:  # the file does not say: as long as the frame before
            duration = last_pts - int(index.frame_pts[frames[-2]])
        elif duration <= 0:
            duration = round(1 / ((source.average_rate or Fraction(1)) * self._time_base))
        self._first_pts = first_pts
        last_seconds, duration_seconds = self._seconds_of(last_pts), self._seconds_of(last_pts + max(1, duration))
        if duration_seconds > MAX_DURATION_SECONDS:
            raise UnreadableVideoError(
                f"{self.path}: lasts {duration_seconds:.0f} s, longer than the {MAX_DURATION_SECONDS:.0f} s that "
                "are read; cut it into shorter videos"
            )
        # The nominal rate is exact where coarse ticks make the measured one 29.9998; but it may be plain wrong.
        average_fps = num_frames / duration_seconds
        if source.average_rate is not None and abs(source.average_rate * duration_seconds - num_frames) <= 0.1:
            average_fps = float(source.average_rate)
        width, height = self._reader.first_frame_size
        info = VideoInfo(
            duration_seconds=duration_seconds,
            num_frames=num_frames,
            average_fps=average_fps,
            width=width,
            height=height,
            missing_bytes=source.missing_bytes,
        )
        is_even = abs(last_seconds - info.last_seconds) <= EVEN_TOLERANCE_SECONDS
        return info if is_even else replace(info, uneven_last_seconds=last_seconds)

    def index_at(self, seconds: float) -> int:
        """Index of the frame shown at a time, 0 <= seconds <= duration.

        Raises:
            FrameRangeError: the time is outside the video or not finite.
        """
        self._opened()
        if not 0 <= seconds <= self.info.duration_seconds:  # also false for nan
            raise FrameRangeError(
                f"{self.path}: time {seconds} s is outside [0, duration {self.info.duration_seconds} s]"
            )
        pts = self._first_pts + math.floor(Fraction(float(seconds)) / self._time_base)
        # A frame's own time, rounded to float64, must give that frame, though it may lie just below the tick.
        if self._seconds_of(pts + 1) <= seconds:
            pts += 1
        return min(max(self._reader.index.index_at(pts), self._frames[0]), self._frames[-1]) - self._frames[0]

    def frames_at(
        self,
        seconds: Sequence[float],
        height: int | None = None,
        width: int | None = None,
        deadline_seconds: float | None = None,
    ) -> FrameBatch:
        """Frames shown at the given times; order and repetitions are kept.

        Args:
            seconds: times from the first frame, 0 <= t <= duration.
            height: in pixels; as displayed if neither side is given, in proportion if only the width is.
            width: likewise.
            deadline_seconds: time that the call may take, waiting for other threads included.

        Raises:
            FrameRangeError: a time is outside the video or not finite.
            UnreadableVideoError: no frame near a damaged one can be decoded.
            DeadlineError: decoding took too long.
        """
        deadline = Deadline(deadline_seconds, f"{self.path}: decode {len(seconds)} frames")
        return self.frames(FrameRequest(*self._size(width, height), seconds=tuple(seconds)), deadline)

    def frames_at_indices(
        self,
        indices: Sequence[int],
        height: int | None = None,
        width: int | None = None,
        deadline_seconds: float | None = None,
    ) -> FrameBatch:
        """Frames by their index in presentation order, 0 <= index < num_frames; else as `frames_at`."""
        deadline = Deadline(deadline_seconds, f"{self.path}: decode {len(indices)} frames")
        return self.frames(FrameRequest(*self._size(width, height), indices=tuple(indices)), deadline)

    def timestamps_seconds(self) -> npt.NDArray[np.float64]:
        """Presentation times of all frames in seconds after the first frame, float64 of shape (num_frames,). Nothing
        is decoded."""
        frame_pts = self._reader.index.frame_pts[self._frames.start : self._frames.stop]
        return np.array([self._seconds_of(pts) for pts in frame_pts.tolist()], dtype=np.float64)

    @property
    def is_random_access(self) -> bool:
        """Whether decoding can start at a key frame near a frame, instead of at the start of the file."""
        return self._reader.index.is_random_access

    def frames(self, request: FrameRequest, deadline: Deadline = NEVER) -> FrameBatch:
        """Frames of a request; see `frames_at`."""
        return self.decode_many([request], deadline)[0]

    def decode_many(self, requests: Sequence[FrameRequest], deadline: Deadline = NEVER) -> list[FrameBatch]:
        """Frames of several requests in one pass: each frame is decoded once and scaled to every requested size.

        Raises:
            VideoError: as `frames_at`. If one request cannot be met, all fail.
        """
        views = [self.views_of(request) for request in requests]
        decoded = self.decode({view for each in views for view in each}, deadline)
        return [
            batch_of([decoded[view] for view in each], request, self.region_of(request))
            for each, request in zip(views, requests, strict=True)
        ]

    def views_of(self, request: FrameRequest) -> list[FrameView]:
        """The views that must be decoded for a request, in its order.

        Raises:
            FrameRangeError: a time, an index or the region is outside the video.
            ValueError: a side is below one pixel.
        """
        size = self._size(request.width, request.height)
        region = self.region_of(request)
        return [FrameView(index, *size, region) for index in self.indices_of(request)]

    def decode(self, views: Collection[FrameView], deadline: Deadline = NEVER) -> dict[FrameView, DecodedFrame]:
        """Frames in one pass: each is decoded once, and scaled to every size that is requested of it.

        Raises:
            VideoError: as `frames_at`.
        """
        views_by_index: dict[int, list[FrameView]] = {}
        for view in views:
            views_by_index.setdefault(self._frames[view.frame_index], []).append(view)
        decoded: dict[FrameView, DecodedFrame] = {}
        with self._locked(deadline) as source:
            source.wake()  # another backend opens the file itself, and it must be the same one still
            decode = None if self._decoder is None else self._decoder.decode
            for requested, shown, frame in self._reader.frames(sorted(views_by_index), self._frames, deadline, decode):
                index = shown - self._frames[0]
                corrupt = shown != requested or frame.is_corrupt
                for view in views_by_index[requested]:
                    decoded[view] = DecodedFrame(self._scaled(frame, view), index, self._time_of(index), corrupt)
        return decoded

    def region_of(self, request: FrameRequest) -> PixelBox | None:
        """The part of each displayed frame that a request shows, in whole pixels; None for all of it.

        Raises:
            FrameRangeError: it leaves the frame.
        """
        return None if request.region is None else request.region.in_pixels(self.info.width, self.info.height)

    def indices_of(self, request: FrameRequest) -> list[int]:
        """Indices of the frames of a request; nothing is decoded.

        Raises:
            FrameRangeError: a time or index is outside the video.
        """
        if request.seconds is not None:
            index_of = self._nearest_to if request.rounding == "nearest" else self.index_at
            indices = [index_of(time) for time in request.seconds]
            if request.within is not None:
                first, last = (self.index_at(time) for time in request.within)
                indices = [min(max(index, first), last) for index in indices]
        else:
            indices = self._checked(request.indices or ())
        return list(dict.fromkeys(indices)) if request.unique else indices

    def planned(self, request: FrameRequest) -> list[FrameRecord]:
        """The frames that a request will show: indices, presentation times and sizes, without pixels. Nothing is
        decoded.

        Decoding shows the same frames, unless a frame is damaged and another one replaces it.

        Raises:
            VideoError: as `indices_of`, or the region leaves the frame.
        """
        region = self.region_of(request)
        return [
            FrameRecord(index, self._time_of(index), request.width, request.height, region)
            for index in self.indices_of(request)
        ]

    def close(self) -> None:
        """Free the file and the decoder. Waits for a call that another thread has under way."""
        with self._lock:
            self._close()

    def release(self) -> None:
        """Free the file and the decoder until the next call needs them. The index of frames is kept.

        Does nothing while a call is under way.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._source is not None:
                    self._free()
            finally:
                self._lock.release()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._source is None

    @property
    def is_open(self) -> bool:
        """Whether the file is open now."""
        source = self._source
        return source is not None and source.is_open

    def __enter__(self) -> Video:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Video({str(self.path)!r}, {self.info})"

    # The methods below need the lock held (or the object not yet shared).

    def _close(self) -> None:
        if self._source is not None:
            self._free()
            self._source = None

    def _free(self) -> None:
        assert self._source is not None
        if self._decoder is not None:
            self._decoder.close()
        self._source.close()
        self._converter = FrameConverter()

    @contextmanager
    def _locked(self, deadline: Deadline) -> Iterator[VideoSource | FrameFileReader]:
        """The opened file, for a thread that reads it. What was read from a file that changed meanwhile is refused."""
        left_seconds = deadline.left_seconds()
        if not self._lock.acquire(timeout=-1 if left_seconds is None else left_seconds):
            raise deadline.error()
        try:
            source = self._opened()
            with report_as_unreadable(self.path):
                yield source
                source.check_unchanged()
        except LostFileError:
            self._close()  # so that the next caller opens the file again
            raise
        finally:
            self._lock.release()

    def _seconds_of(self, pts: int) -> float:
        """Time from the first frame: an exact quotient, correctly rounded."""
        return (pts - self._first_pts) * self._time_base.numerator / self._time_base.denominator

    def _time_of(self, index: int) -> float:
        return self._seconds_of(int(self._reader.index.frame_pts[self._frames[index]]))

    def _nearest_to(self, seconds: float) -> int:
        """Index of the frame whose own time is nearest, half way the later one."""
        shown = self.index_at(seconds)
        if shown + 1 >= self.info.num_frames:
            return shown
        earlier, later = self._time_of(shown), self._time_of(shown + 1)
        return shown + 1 if later - seconds <= seconds - earlier + HALF_WAY_TOLERANCE_SECONDS else shown

    def _opened(self) -> VideoSource | FrameFileReader:
        """Raise ClosedVideoError after `close`: the file may be another one by now, with other frames."""
        if self._source is None:
            raise ClosedVideoError(f"{self.path}: the video was closed")
        return self._source

    def _checked(self, indices: Sequence[int]) -> list[int]:
        self._opened()
        for index in indices:
            if not 0 <= index < self.info.num_frames:
                raise FrameRangeError(
                    f"{self.path}: frame index {index} is outside [0, {self.info.num_frames}) "
                    f"(duration {self.info.duration_seconds} s)"
                )
        return [int(index) for index in indices]

    def _scaled(self, frame: av.VideoFrame, view: FrameView) -> npt.NDArray[np.uint8]:
        """A copy, since PyAV's array shares the memory of its frame, which has lines beyond the picture."""
        if view.region is None:
            return self._converter.convert(frame, view.width, view.height).copy()
        size = (self.info.width, self.info.height)
        return self._converter.crop(frame, view.width, view.height, view.region, size).copy()

    def _size(self, width: int | None, height: int | None) -> tuple[int, int]:
        return missing_sides(width, height, (self.info.width, self.info.height))
