"""A `FrameBatch` in the making, filled frame by frame in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.types import FrameBatch


@dataclass(frozen=True, slots=True)
class FrameFacts:
    """What belongs to the pixels of one frame."""

    index: int
    """Of the frame shown, which stands in for the one asked for where that is damaged."""
    timestamp_seconds: float
    corrupt: bool


class BatchBuilder:
    """Rows of a batch of `num_frames` pictures; `frames_THWC` is theirs to write into."""

    def __init__(self, num_frames: int, height: int, width: int) -> None:
        self.frames_THWC: npt.NDArray[np.uint8] = np.empty((num_frames, height, width, 3), dtype=np.uint8)
        self._timestamps_seconds = np.empty(num_frames, dtype=np.float64)
        self._corrupt = np.zeros(num_frames, dtype=np.bool_)
        self._index_by_time: dict[float, int] = {}
        self._num_cached = 0

    def label(self, positions: Sequence[int], facts: FrameFacts, cached: bool = False) -> None:
        """Say what was put into the rows at `positions`."""
        self._index_by_time[facts.timestamp_seconds] = facts.index
        self._timestamps_seconds[positions] = facts.timestamp_seconds
        self._corrupt[positions] = facts.corrupt
        self._num_cached += len(positions) * cached

    def build(self) -> FrameBatch:
        """The batch; every row must have been written and labelled."""
        index_by_time = self._index_by_time

        def index_of(times_seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
            return np.array([index_by_time[time] for time in times_seconds.tolist()], dtype=np.int64)

        return FrameBatch(self.frames_THWC, self._timestamps_seconds, self._corrupt, index_of, self._num_cached)
