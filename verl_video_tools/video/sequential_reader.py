"""Frames by index by decoding the file from its start: slow, but right where packets do not tell the frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

import av
import numpy as np

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.source import Deadline, VideoSource


class SequentialReader:
    """A `FrameReader` that counts the frames which the decoder hands out.

    Times are those of the decoder; a frame at the time of the one before it, as clocks of milliseconds write them, is a
    tick later. Where times are missing, go back or mostly stand still, frames are spaced evenly at the stream's rate.

    Raises:
        UnreadableVideoError: no frame can be decoded.
    """

    is_random_access = False

    def __init__(self, source: VideoSource, deadline: Deadline) -> None:
        self._source = source
        pts: list[int | None] = []
        duration = 0
        for frame in self._frames(deadline):
            pts.append(frame.pts)
            duration = frame.duration or 0
        if not pts:
            raise UnreadableVideoError(f"{source.path}: no frame of the video stream can be decoded")
        times = [time for time in pts if time is not None]
        steps = [later - earlier for earlier, later in pairwise(times)]
        if len(times) < len(pts) or min(steps, default=1) < 0 or 2 * steps.count(0) > len(steps):
            rate = source.stream.average_rate or source.stream.guessed_rate or Fraction(25)
            step = 1 / (rate * source.time_base)
            times = [round(index * step) for index in range(len(pts))]
            duration = round(step)
        # Each time is at least a tick above the one before it.
        numbers = np.arange(len(times))
        self._pts = np.maximum.accumulate(np.array(times, dtype=np.int64) - numbers) + numbers
        self._last_duration = duration
        self.num_frames = len(times)

    def pts_at(self, index: int, deadline: Deadline) -> int:
        return int(self._pts[index])

    def index_at(self, pts: int, deadline: Deadline) -> int:
        """Index of the last frame whose time is not after `pts`; the first frame for an earlier time."""
        return max(0, int(np.searchsorted(self._pts, pts, side="right")) - 1)

    def last_duration(self, deadline: Deadline) -> int:
        """Duration of the last frame in ticks, 0 if the file does not say."""
        return self._last_duration

    def group_of(self, index: int, deadline: Deadline) -> int:
        """0: every frame needs all frames before it."""
        return 0

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode frames, given by ascending distinct indices."""
        wanted = set(indices)
        if not wanted:
            return
        self._source.rewind()
        for index, frame in enumerate(self._frames(deadline)):
            if index in wanted:
                yield index, frame
            if index == indices[-1]:
                return

    def decodable_near(self, index: int, within: range, deadline: Deadline) -> int | None:
        """None: every frame counted was decoded."""
        return None

    def keyframe_indices(self, deadline: Deadline) -> list[int]:
        """Only the first frame: the others are not known."""
        return [0]

    def is_in_closed_group(self, index: int, deadline: Deadline) -> bool:
        """False: groups of pictures are not known."""
        return False

    def close(self) -> None:
        """Free the file and the decoder."""
        self._source.close()

    def _frames(self, deadline: Deadline) -> Iterator[av.VideoFrame]:
        for packet in self._source.packets(deadline):
            yield from self._source.decode(packet) or ()
        yield from self._source.decode(None) or ()
