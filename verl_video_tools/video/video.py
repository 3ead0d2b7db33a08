"""`Video`: the frames of one file, exact in time."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import numpy as np
import numpy.typing as npt

from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.errors import ClosedVideoError, FrameRangeError, UnreadableVideoError
from verl_video_tools.core.types import FrameBatch, FrameRecord, FrameRequest, PixelBox, VideoInfo
from verl_video_tools.video.backends import FrameDecoder, chosen_backend, open_backend
from verl_video_tools.video.batch import BatchBuilder, BatchRow, FrameFacts
from verl_video_tools.video.clipped_reader import ClippedDecoder, clipped
from verl_video_tools.video.frame_converter import FrameConverter, display_size
from verl_video_tools.video.grids import cells_of, tiled, tiled_records
from verl_video_tools.video.identity import file_identity
from verl_video_tools.video.opening_check import check_opening
from verl_video_tools.video.readers import FrameReader, open_reader
from verl_video_tools.video.reading import report_as_unreadable
from verl_video_tools.video.resize import missing_sides
from verl_video_tools.video.source import MAX_DURATION_SECONDS, NEVER, Deadline, LostFileError, VideoSource

logger = logging.getLogger(__name__)

_Wanted = tuple[list[int], tuple[int, int, PixelBox | None]]
"""Indices of frames; their height and width, and the part of each."""

HALF_WAY_TOLERANCE_SECONDS = 2e-6
"""Keeps float error from taking half way between two frames for nearer to the earlier one."""


class Video:
    """Random access to the frames of a video file by time or by index.

    Time 0 is when the first frame is shown, whatever the file's own clock says. Time t shows the frame whose
    presentation interval contains t; the end of the video shows the last frame. Opening reads the sample table of an
    MP4 file, and all packets of other files, once. Several threads may use one object; they take turns.

    Args:
        path: a local file, or a part of one (`core.clips`), which then is all that there is to see.
        deadline_seconds: time that opening may take.
        backend: what decodes the frames: "pyav", "torchcodec", "decord" or "ffmpeg" (see `video.backends`); None
            takes the environment variable VVT_VIDEO_BACKEND, and "pyav" where that is not set. Only "pyav" finds
            damaged frames and replaces them.

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
        self._decoder: FrameDecoder | None = None
        self.path = Path(path)
        with report_as_unreadable(self.path):
            self._open(deadline)

    def _open(self, deadline: Deadline) -> None:
        check_opening(self.identity, deadline)
        file, clip_seconds = read_clip(self.path)
        self._source = VideoSource(Path(file))
        self._time_base = self._source.time_base
        try:
            whole = open_reader(self._source, deadline)
            if whole.num_frames == 0:
                raise UnreadableVideoError(f"{self.path}: the video stream shows no frame")
            self._reader: FrameReader = whole
            if clip_seconds is not None:
                self._reader = clip = clipped(whole, self.path, clip_seconds, self._time_base, deadline)
            self._first_pts = self._reader.pts_at(0, deadline)
            duration_seconds = self._duration_seconds(self._source, deadline)
            if duration_seconds > MAX_DURATION_SECONDS:
                raise UnreadableVideoError(
                    f"{self.path}: lasts {duration_seconds:.0f} s, longer than the {MAX_DURATION_SECONDS:.0f} s that "
                    "are read; cut it into shorter videos"
                )
            # Only now: other decoders than ours have no limits.
            self._decoder = open_backend(self.backend, self._source, whole, deadline)
            if clip_seconds is not None:
                self._decoder = ClippedDecoder(self._decoder, clip.first)
            self.info = self._probe(self._source, duration_seconds, deadline)
        except BaseException:
            self.close()
            raise

    def _duration_seconds(self, source: VideoSource, deadline: Deadline) -> float:
        """From the first frame to the end of the last."""
        num_frames = self._reader.num_frames
        last_pts = self._reader.pts_at(num_frames - 1, deadline)
        duration = self._reader.last_duration(deadline)
        average_rate = source.stream.average_rate
        if duration <= 0 and num_frames > 1:  # the file does not say: as long as the frame before
            duration = last_pts - self._reader.pts_at(num_frames - 2, deadline)
        elif duration <= 0:
            duration = round(1 / ((average_rate or Fraction(1)) * source.time_base))
        return self._seconds_of(last_pts + max(1, duration))

    def _probe(self, source: VideoSource, duration_seconds: float, deadline: Deadline) -> VideoInfo:
        num_frames = self._reader.num_frames
        average_rate = source.stream.average_rate
        # The nominal rate is exact where coarse ticks make the measured one 29.9998; but it may be plain wrong.
        average_fps = num_frames / duration_seconds
        if average_rate is not None and abs(average_rate * duration_seconds - num_frames) <= 0.1:
            average_fps = float(average_rate)
        _, _, frame = next(self._frames([0], deadline))
        width, height = display_size(frame)
        return VideoInfo(
            duration_seconds=duration_seconds,
            num_frames=num_frames,
            average_fps=average_fps,
            width=width,
            height=height,
        )

    def index_at(self, seconds: float, deadline: Deadline = NEVER) -> int:
        """Index of the frame shown at a time, 0 <= seconds <= duration.

        Raises:
            FrameRangeError: the time is outside the video or not finite.
        """
        with self._held(deadline):
            return self._index_at(seconds, deadline)

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
        with self._held(deadline):
            indices = [self._index_at(time, deadline) for time in seconds]
            return self._batches([(indices, (*size, None))], deadline)[0]

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
        with self._held(deadline):
            return self._batches([(checked, (*size, None))], deadline)[0]

    def timestamps_seconds(self, deadline: Deadline = NEVER) -> npt.NDArray[np.float64]:
        """Presentation times of all frames, from the first one: float64, shape (num_frames,). Nothing is decoded."""
        with self._held(deadline):
            pts = [self._reader.pts_at(index, deadline) for index in range(self.info.num_frames)]
        return np.array([self._seconds_of(tick) for tick in pts], dtype=np.float64)

    def keyframe_indices(self, deadline: Deadline = NEVER) -> list[int]:
        """Ascending indices of the frames that can be decoded without any other: the cheapest to ask for.

        Only the first frame where the file does not tell them reliably.
        """
        with self._held(deadline):
            return self._reader.keyframe_indices(deadline)

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
        with self._held(deadline):
            wanted = [(self._indices_of(each, deadline), view) for each, view in zip(cells, views, strict=True)]
            return [tiled(*pair) for pair in zip(self._batches(wanted, deadline), requests, strict=True)]

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
        with self._held(deadline):
            return self._indices_of(request, deadline)

    def planned(self, request: FrameRequest, deadline: Deadline = NEVER) -> list[FrameRecord]:
        """What a request will show, indices and presentation times and all but pixels; nothing is decoded.

        Decoding shows the same, but where a frame turns out to be damaged and another stands in for it.

        Raises:
            VideoError: see `indices_of`; or the region leaves the frame.
        """
        region = self.region_of(request)
        with self._held(deadline):
            indices = self._indices_of(request, deadline)
            times = [self._seconds_of(self._reader.pts_at(index, deadline)) for index in indices]
        told = zip(indices, times, strict=True)
        records = [FrameRecord(index, time, request.width, request.height, region) for index, time in told]
        return tiled_records(records, request)

    def groups_of(self, indices: Sequence[int], deadline: Deadline = NEVER) -> list[int]:
        """For each frame the number of the group of pictures that decoding has to begin with.

        Frames of one group are best decoded together; those of different groups share no work worth mentioning.
        """
        checked = self._checked(indices)
        with self._held(deadline):
            return [self._reader.group_of(index, deadline) for index in checked]

    def close(self) -> None:
        """Free the file and the decoder. Waits for a call that another thread has under way."""
        with self._lock:
            self._close()

    @property
    def closed(self) -> bool:
        return self._source is None

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
        if self._source is None:
            return
        if self._decoder is not None:
            self._decoder.close()
        self._source.close()
        self._source = None

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
        """Time from the first frame; an exact quotient, correctly rounded."""
        return (pts - self._first_pts) * self._time_base.numerator / self._time_base.denominator

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
        for asked, shown, frame in self._frames(sorted(rows_of_index), deadline):
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

    def _frames(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, int, av.VideoFrame]]:
        """(asked index, shown index, frame) for ascending distinct indices; the nearest frame where one is damaged."""
        missing = set(indices)
        assert self._decoder is not None
        for index, frame in self._decoder.decode(indices, deadline):
            missing.discard(index)
            yield index, index, frame
        stand_ins: dict[int, list[int]] = {}
        for index in sorted(missing):
            near = self._reader.decodable_near(index, deadline)
            if near is None:
                break
            stand_ins.setdefault(near, []).append(index)
        for shown, frame in self._reader.decode(sorted(stand_ins), deadline):
            for asked in stand_ins[shown]:
                missing.discard(asked)
                yield asked, shown, frame
        if missing:
            raise UnreadableVideoError(f"{self.path}: neither frame {min(missing)} nor any near it can be decoded")
