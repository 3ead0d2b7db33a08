"""Decoded frames, and the batch that a request gets of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.types import FrameBatch, FrameRequest, PixelBox


class FrameView(NamedTuple):
    """A frame of a video, or a part of it, at a size."""

    frame_index: int
    width: int
    height: int
    region: PixelBox | None


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """Pixels and labels of one frame, as `FrameBatch` has them."""

    pixels_HWC: npt.NDArray[np.uint8]
    index: int
    """Of the frame shown: another one replaces the requested frame where that is damaged."""
    timestamp_seconds: float
    corrupt: bool


def batch_of(
    frames: Sequence[DecodedFrame], request: FrameRequest, region: PixelBox | None, num_cached: int = 0
) -> FrameBatch:
    """The batch of a request.

    Args:
        frames: all of the request, in its order and at its size.
        region: the part of each frame, in pixels.
    """
    frames_THWC: npt.NDArray[np.uint8] = np.empty((len(frames), request.height, request.width, 3), dtype=np.uint8)
    for row, frame in enumerate(frames):
        frames_THWC[row] = frame.pixels_HWC
    return FrameBatch(
        frames_THWC=frames_THWC,
        timestamps_seconds=np.array([frame.timestamp_seconds for frame in frames], dtype=np.float64),
        corrupt=np.array([frame.corrupt for frame in frames], dtype=np.bool_),
        indices=np.array([frame.index for frame in frames], dtype=np.int64),
        num_cached=num_cached,
        region=region,
    )
