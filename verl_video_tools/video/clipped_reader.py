"""Some frames of a file as if they were all of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.backends import FrameDecoder
from verl_video_tools.video.readers import FrameReader
from verl_video_tools.video.source import Deadline

_ROUNDING_SECONDS = 0.0005
"""Names of clips hold milliseconds: a frame that begins at 0.6667 s is the one meant by 0.667."""


class ClippedReader:
    """The frames of another reader from `first` to `last`, counted from 0. A `FrameReader`."""

    def __init__(self, reader: FrameReader, first: int, last: int) -> None:
        self._reader = reader
        self.first = first
        self.num_frames = last - first + 1
        self.is_random_access = reader.is_random_access

    def pts_at(self, index: int, deadline: Deadline) -> int:
        return self._reader.pts_at(self.first + index, deadline)

    def index_at(self, pts: int, deadline: Deadline) -> int:
        return min(max(self._reader.index_at(pts, deadline) - self.first, 0), self.num_frames - 1)

    def last_duration(self, deadline: Deadline) -> int:
        after = self.first + self.num_frames
        if after < self._reader.num_frames:
            return self._reader.pts_at(after, deadline) - self._reader.pts_at(after - 1, deadline)
        return self._reader.last_duration(deadline)

    def group_of(self, index: int, deadline: Deadline) -> int:
        return self._reader.group_of(self.first + index, deadline)

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        for index, frame in self._reader.decode(self._outer(indices), deadline):
            yield index - self.first, frame

    def decodable_near(self, index: int, within: range, deadline: Deadline) -> int | None:
        """One of the clip's, though another may be nearer: what is cut away stays unseen."""
        outer = range(self.first + within.start, self.first + within.stop)
        near = self._reader.decodable_near(self.first + index, outer, deadline)
        return None if near is None else near - self.first

    def keyframe_indices(self, deadline: Deadline) -> list[int]:
        """The first frame where the clip holds no key frame: none is cheaper there."""
        inner = (index - self.first for index in self._reader.keyframe_indices(deadline))
        return [index for index in inner if 0 <= index < self.num_frames] or [0]

    def is_in_closed_group(self, index: int, deadline: Deadline) -> bool:
        return self._reader.is_in_closed_group(self.first + index, deadline)

    def close(self) -> None:
        self._reader.close()

    def _outer(self, indices: Sequence[int]) -> list[int]:
        return [self.first + index for index in indices]


class ClippedDecoder:
    """A decoder of the whole file, asked for frames of a part of it that begins with frame `first`."""

    def __init__(self, decoder: FrameDecoder, first: int) -> None:
        self._decoder = decoder
        self._first = first

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        for index, frame in self._decoder.decode([self._first + index for index in indices], deadline):
            yield index - self._first, frame

    def close(self) -> None:
        self._decoder.close()


def clipped(
    reader: FrameReader, path: Path, seconds: tuple[float, float], time_base: Fraction, deadline: Deadline
) -> ClippedReader:
    """The frames that begin in [start, end).

    Args:
        path: for the message.
        seconds: start and end, from the first frame of the file.

    Raises:
        UnreadableVideoError: there is none.
        DeadlineError: finding them took too long.
    """
    first, after = (_first_from(reader, time, time_base, deadline) for time in seconds)
    if first >= after:
        raise UnreadableVideoError(f"{path}: the file has no frame that begins in this part of it")
    return ClippedReader(reader, first, after - 1)


def _first_from(reader: FrameReader, seconds: float, time_base: Fraction, deadline: Deadline) -> int:
    """Index of the first frame that begins at a time or later; the number of frames where none does."""
    least = reader.pts_at(0, deadline) + (seconds - _ROUNDING_SECONDS) / time_base
    index = reader.index_at(math.floor(least), deadline)
    while index < reader.num_frames and reader.pts_at(index, deadline) < least:
        index += 1
    return index
