"""A `FrameBatch` in the making, filled frame by frame in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.types import FrameBatch, PixelBox


@dataclass(frozen=True, slots=True)
class FrameFacts:
    """What belongs to the pixels of one frame."""

    index: int
    """Of the frame shown, which stands in for the one asked for where that is damaged."""
    timestamp_seconds: float
    corrupt: bool


class BatchBuilder:
    """Rows of a batch of `num_frames` images, of a region or whole; `frames_THWC` is theirs to write into."""

    def __init__(self, num_frames: int, height: int, width: int, region: PixelBox | None = None) -> None:
        self.height = height
        self.width = width
        self.region = region
        self.frames_THWC: npt.NDArray[np.uint8] = np.empty((num_frames, height, width, 3), dtype=np.uint8)
        self._timestamps_seconds = np.empty(num_frames, dtype=np.float64)
        self._corrupt = np.zeros(num_frames, dtype=np.bool_)
        self._indices = np.empty(num_frames, dtype=np.int64)
        self._num_cached = 0

    def put(self, row: int, pixels_HWC: npt.NDArray[np.uint8], facts: FrameFacts, cached: bool = False) -> None:
        """Copy pixels into a row, and label it."""
        self.frames_THWC[row] = pixels_HWC
        self.label(row, facts, cached)

    def label(self, row: int, facts: FrameFacts, cached: bool = False) -> None:
        """Say what was put into a row."""
        self._timestamps_seconds[row] = facts.timestamp_seconds
        self._corrupt[row] = facts.corrupt
        self._indices[row] = facts.index
        self._num_cached += cached

    def build(self) -> FrameBatch:
        """The batch; every row must have been written and labelled."""
        return FrameBatch(
            *(self.frames_THWC, self._timestamps_seconds, self._corrupt, self._indices, self._num_cached, self.region)
        )


BatchRow = tuple[BatchBuilder, int]
"""One row of one of the batches in the making."""
