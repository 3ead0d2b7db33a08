"""`Video`: the frames of one file, exact in time."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import av
import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import ClosedVideoError, FrameRangeError
from verl_video_tools.core.types import FrameBatch, FrameRecord, FrameRequest, PixelBox
from verl_video_tools.video.backends import chosen_backend
from verl_video_tools.video.batch import BatchBuilder, BatchRow, FrameFacts
from verl_video_tools.video.frame_converter import FrameConverter
from verl_video_tools.video.grids import cells_of, tiled, tiled_records
from verl_video_tools.video.identity import file_identity
from verl_video_tools.video.opening import open_file, seconds_between
from verl_video_tools.video.reading import report_as_unreadable
from verl_video_tools.video.resize import missing_sides
from verl_video_tools.video.segments import TableContradicted
from verl_video_tools.video.source import NEVER, Deadline, LostFileError, VideoSource
from verl_video_tools.video.stand_ins import frames_or_stand_ins
from verl_video_tools.video.table_trust import distrust_table, trusts_table

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_Wanted = tuple[list[int], tuple[int, int, PixelBox | None]]
"""Indices of frames; their height and width, and the part of each."""

HALF_WAY_TOLERANCE_SECONDS = 2e-6
"""Keeps float error from taking half way between two frames for nearer to the earlier one."""


class Video:
    """Random access to the frames of a video file by time or by index.

    Time 0 is when the first frame is shown, whatever the file's own clock says. Time t shows the frame whose
    presentation interval contains t; the end of the video shows the last frame. Opening reads the sample table of an
    MP4 file, and all packets of other files, once. Several threads may use one object; they take turns.

    Should a call find that an MP4 file's sample table is wrong, it reads the file anew without that table: indices, and
    `info`, may change a little.

    Attributes:
        is_shared: several calls rely on the same indices, so that such a file is closed (`ClosedVideoError`) instead,
            and whoever wants frames of it begins again with another object.
        trusts_table: the sample table, if there is one, was not found wrong.

    Args:
        path: a local file, or a part of one (`core.sample`), which then is all that there is to see.
        deadline_seconds: time that opening may take.
        backend: what decodes the frames: "pyav", "torchcodec", "decord" or "ffmpeg" (see `video.backends`); None
            takes the environment variable VVT_VIDEO_BACKEND, and "pyav" where that is not set. Only "pyav" replaces
            damaged frames: those that FFmpeg notices, and what is predicted from them, up to the next key frame. Much
            damage goes unnoticed in HEVC and VP9, some in H.264, and in AV1 that of the first picture hit. Without
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
        self._source: VideoSource | None = None
        self.path = Path(path)
        self.is_shared = False
        with report_as_unreadable(self.path):
            self._open(deadline)

    def _open(self, deadline: Deadline) -> None:
        try:
            self._open_once(deadline)
        except TableContradicted as contradiction:
            distrust_table(self.path, self.identity, contradiction)
            self._open_once(deadline)

    def _open_once(self, deadline: Deadline) -> None:
        self.trusts_table = trusts_table(self.identity)
        opened = open_file(self.path, self.backend, deadline, self.trusts_table)
        self._source, self._reader, self._decoder = opened.source, opened.reader, opened.decoder
        self._time_base, self._first_pts = opened.source.time_base, opened.first_pts
        self.info = opened.info

    def index_at(self, seconds: float, deadline: Deadline = NEVER) -> int:
        """Index of the frame shown at a time, 0 <= seconds <= duration.

        Raises:
            FrameRangeError: the time is outside the video or not finite.
        """
        return self._asked(lambda: self._index_at(seconds, deadline), deadline)

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
        size = self._sides(height, width)
        deadline = Deadline(deadline_seconds, f"{self.path}: decode {len(seconds)} frames")

        def decode() -> FrameBatch:
            indices = [self._index_at(time, deadline) for time in seconds]
            return self._batches([(indices, (*size, None))], deadline)[0]

        return self._asked(decode, deadline)

    def frames_at_indices(
        self,
        indices: Sequence[int],
        height: int | None = None,
        width: int | None = None,
        deadline_seconds: float | None = None,
    ) -> FrameBatch:
        """Frames by their index in presentation order, 0 <= index < num_frames; else as `frames_at`."""
        checked, size = self._checked(indices), self._sides(height, width)
        deadline = Deadline(deadline_seconds, f"{self.path}: decode {len(checked)} frames")
        return self._asked(lambda: self._batches([(self._checked(checked), (*size, None))], deadline)[0], deadline)

    def timestamps_seconds(self, deadline: Deadline = NEVER) -> npt.NDArray[np.float64]:
        """Presentation times of all frames, from the first one: float64, shape (num_frames,). Nothing is decoded."""

        def read() -> list[float]:
            pts = (self._reader.pts_at(index, deadline) for index in range(self.info.num_frames))
            return [self._seconds_of(tick) for tick in pts]

        return np.array(self._asked(read, deadline), dtype=np.float64)

    def keyframe_indices(self, deadline: Deadline = NEVER) -> list[int]:
        """Ascending indices of the frames that can be decoded without any other: the cheapest to ask for.

        Only the first frame where the file does not tell them reliably.
        """
        return self._asked(lambda: self._reader.keyframe_indices(deadline), deadline)

    @property
    def is_random_access(self) -> bool:
        """Whether a frame is reached from a key frame near it, and not only by decoding all that comes before."""
        return self._reader.is_random_access

    @property
    def start_seconds(self) -> float:
        """Time of the first frame on the file's own clock."""
        return float(self._first_pts * self._time_base)

    def frames(self, request: FrameRequest, deadline: Deadline = NEVER) -> FrameBatch:
        """Frames of a request; see `frames_at`."""
        return self.decode_many([request], deadline)[0]

    def decode_many(self, requests: Sequence[FrameRequest], deadline: Deadline = NEVER) -> list[FrameBatch]:
        """Frames of several requests in one pass: each frame is decoded once and scaled to every size asked of it.

        Raises:
            VideoError: as `frames_at`; one request that cannot be met fails all.
        """
        cells = [cells_of(request) for request in requests]
        views = [(*self._sides(each.height, each.width), self.region_of(each)) for each in cells]

        def decode() -> list[FrameBatch]:
            wanted = [(self._indices_of(each, deadline), view) for each, view in zip(cells, views, strict=True)]
            return [tiled(*pair) for pair in zip(self._batches(wanted, deadline), requests, strict=True)]

        return self._asked(decode, deadline)

    def region_of(self, request: FrameRequest) -> PixelBox | None:
        """The part of each displayed frame that a request asks for, in whole pixels; None for all of it.

        Raises:
            FrameRangeError: it leaves the frame.
        """
        return None if request.region is None else request.region.in_pixels(self.info.width, self.info.height)

    def indices_of(self, request: FrameRequest, deadline: Deadline = NEVER) -> list[int]:
        """Indices of the frames that a request asks for; none is decoded.

        Raises:
            FrameRangeError: a time or index is outside the video.
            DeadlineError: another thread kept the video busy, or reading the file took too long.
        """
        return self._asked(lambda: self._indices_of(request, deadline), deadline)

    def planned(self, request: FrameRequest, deadline: Deadline = NEVER) -> list[FrameRecord]:
        """What a request will show, indices and presentation times and all but pixels; nothing is decoded.

        Decoding shows the same, but where a frame turns out to be damaged and another stands in for it.

        Raises:
            VideoError: see `indices_of`; or the region leaves the frame.
        """
        region = self.region_of(request)

        def read() -> list[FrameRecord]:
            indices = self._indices_of(request, deadline)
            told = [(index, self._seconds_of(self._reader.pts_at(index, deadline))) for index in indices]
            return [FrameRecord(index, time, request.width, request.height, region) for index, time in told]

        return tiled_records(self._asked(read, deadline), request)

    def groups_of(self, indices: Sequence[int], deadline: Deadline = NEVER) -> list[int]:
        """For each frame the number of the group of pictures that decoding has to begin with.

        Frames of one group are best decoded together; those of different groups share no work worth mentioning.
        """
        checked = self._checked(indices)
        return self._asked(
            lambda: [self._reader.group_of(index, deadline) for index in self._checked(checked)], deadline
        )

    def close(self) -> None:
        """Free the file and the decoder. Waits for a call that another thread has under way."""
        with self._lock:
            self._close()

    def release(self) -> None:
        """Free the file and the decoder until the next call needs them; where each frame is stays known.

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
        """Whether it is closed for good."""
        return self._source is None

    @property
    def is_open(self) -> bool:
        """Whether it holds the file now."""
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
        self._decoder.close()
        self._source.close()
        self._converter = FrameConverter()

    def _asked(self, read: Callable[[], Result], deadline: Deadline) -> Result:
        """What `read` gives with the lock held; it is called again where the file's table turns out wrong."""
        with self._held(deadline):
            try:
                return read()
            except TableContradicted as contradiction:
                distrust_table(self.path, self.identity, contradiction)
                self._close()
                if self.is_shared:
                    raise ClosedVideoError(f"{contradiction}; open it anew") from None
            self._open(deadline)
            return read()

    @contextmanager
    def _held(self, deadline: Deadline) -> Iterator[None]:
        left_seconds = deadline.left_seconds()
        if not self._lock.acquire(timeout=-1 if left_seconds is None else left_seconds):
            raise deadline.error()
        try:
            if self._source is None:
                raise ClosedVideoError(f"{self.path}: the video was closed")
            with report_as_unreadable(self.path):
                yield
        except LostFileError:
            self._close()  # so that whoever asks next for the file opens it anew
            raise
        finally:
            self._lock.release()

    def _seconds_of(self, pts: int) -> float:
        """Time from the first frame."""
        return seconds_between(self._first_pts, pts, self._time_base)

    def _index_at(self, seconds: float, deadline: Deadline) -> int:
        if not 0 <= seconds <= self.info.duration_seconds:  # also false for nan
            raise FrameRangeError(
                f"{self.path}: time {seconds} s is outside [0, duration {self.info.duration_seconds} s]"
            )
        pts = self._first_pts + math.floor(Fraction(float(seconds)) / self._time_base)
        # A frame's own time, rounded to float64, must give that frame, though it may lie just below the tick.
        if self._seconds_of(pts + 1) <= seconds:
            pts += 1
        return self._reader.index_at(pts, deadline)

    def _nearest_to(self, seconds: float, deadline: Deadline) -> int:
        """Index of the frame whose own time is nearest, half way the later one."""
        shown = self._index_at(seconds, deadline)
        if shown + 1 >= self.info.num_frames:
            return shown
        earlier, later = (self._seconds_of(self._reader.pts_at(index, deadline)) for index in (shown, shown + 1))
        return shown + 1 if later - seconds <= seconds - earlier + HALF_WAY_TOLERANCE_SECONDS else shown

    def _checked(self, indices: Sequence[int]) -> list[int]:
        for index in indices:
            if not 0 <= index < self.info.num_frames:
                raise FrameRangeError(
                    f"{self.path}: frame index {index} is outside [0, {self.info.num_frames}) "
                    f"(duration {self.info.duration_seconds} s)"
                )
        return [int(index) for index in indices]

    def _indices_of(self, request: FrameRequest, deadline: Deadline) -> list[int]:
        if request.seconds is not None:
            index_of = self._nearest_to if request.rounding == "nearest" else self._index_at
            indices = [index_of(time, deadline) for time in request.seconds]
            if request.within is not None:
                first, last = (self._index_at(time, deadline) for time in request.within)
                indices = [min(max(index, first), last) for index in indices]
        else:
            indices = self._checked(request.indices or ())
        return list(dict.fromkeys(indices)) if request.unique else indices

    def _batches(self, wanted: Sequence[_Wanted], deadline: Deadline) -> list[FrameBatch]:
        """One batch for each (indices, (height, width, region)), decoded in one pass."""
        builders = [BatchBuilder(len(indices), *view) for indices, view in wanted]
        rows_of_index: dict[int, list[BatchRow]] = defaultdict(list)
        for builder, (indices, _) in zip(builders, wanted, strict=True):
            for row, index in enumerate(indices):
                rows_of_index[index].append((builder, row))
        if self.backend != "pyav" and self._source is not None:
            self._source.wake()  # others open the file themselves, and it must be the same one still
        frames = frames_or_stand_ins(self.path, self._decoder, self._reader, sorted(rows_of_index), deadline)
        for asked, shown, frame in frames:
            time_seconds = self._seconds_of(self._reader.pts_at(shown, deadline))
            facts = FrameFacts(shown, time_seconds, corrupt=shown != asked or frame.is_corrupt)
            rows = rows_of_index[asked]
            views = dict.fromkeys((builder.width, builder.height, builder.region) for builder, _ in rows)
            scaled_HWC = {view: self._scaled(frame, *view) for view in views}
            for builder, row in rows:
                builder.put(row, scaled_HWC[builder.width, builder.height, builder.region], facts)
        return [builder.build() for builder in builders]

    def _scaled(self, frame: av.VideoFrame, width: int, height: int, region: PixelBox | None) -> npt.NDArray[np.uint8]:
        if region is None:
            return self._converter.convert(frame, width, height)
        return self._converter.cut(frame, width, height, region, (self.info.width, self.info.height))

    def _sides(self, height: int | None, width: int | None) -> tuple[int, int]:
        return missing_sides(height, width, (self.info.height, self.info.width))
