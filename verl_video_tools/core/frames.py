"""Videos and their frames.

Legend of axes: T frames in time order of the request, H height, W width, C colour channels (RGB).
Times are presentation times in seconds from the first frame shown; indices count frames in presentation order from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.regions import PixelBox, Region


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Facts read from the file, never from a row. Width and height are as displayed (rotation applied)."""

    duration_seconds: float
    num_frames: int
    average_fps: float
    width: int
    height: int
    uneven_last_seconds: float | None = None
    """Time of the last frame if the average rate does not give it. Records have this key if it is not None."""
    missing_bytes: int = 0
    """By how much the file is shorter than it says: a download that broke off. Records have this key if it is not 0."""

    @property
    def last_seconds(self) -> float:
        """Time of the last frame."""
        if self.uneven_last_seconds is not None:
            return self.uneven_last_seconds
        return (self.num_frames - 1) / self.average_fps

    def to_dict(self) -> dict[str, Any]:
        """The arguments of the class, as JSON."""
        data = asdict(self)
        if self.uneven_last_seconds is None:
            del data["uneven_last_seconds"]
        if not self.missing_bytes:
            del data["missing_bytes"]
        return data


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One picture in the dialogue, without its pixels. Width and height are in pixels, as given to the processor.

    Attributes:
        region: the shown part of the displayed frame; None for the whole frame.
    """

    index: int
    timestamp_seconds: float
    width: int
    height: int
    region: PixelBox | None = None
    video: int = 0
    """Number of the row's video, from 0. Records have this key if it is not 0."""
    digest: str | None = None
    """Of the pixels of a picture that a tool has made, which is no frame: its `index` is -1. Records have this key if
    it is not None."""

    def to_dict(self) -> dict[str, Any]:
        """JSON, with `region` (left, top, right, bottom), `video` and `digest` only if they are not the defaults."""
        data: dict[str, Any] = {
            "index": self.index,
            "timestamp_seconds": self.timestamp_seconds,
            "width": self.width,
            "height": self.height,
        }
        if self.region is not None:
            data["region"] = list(self.region)
        if self.video:
            data["video"] = self.video
        if self.digest is not None:
            data["digest"] = self.digest
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FrameRecord:
        """The inverse of `to_dict`."""
        region = None if data.get("region") is None else PixelBox(*data["region"])
        return cls(**{**data, "region": region})


@dataclass(frozen=True)
class FrameBatch:
    """Decoded frames with the decoder's presentation times; order and duplicates as requested.

    Attributes:
        frames_THWC: uint8 RGB.
        timestamps_seconds: float64, shape (T,).
        corrupt: bool, shape (T,); True if the nearest decodable frame replaces a damaged one.
        indices: int64, shape (T,); numbers of the frames in presentation order of the file.
        num_cached: frames that came from a cache.
        region: the part of each displayed frame that was cut out; None for whole frames.
    """

    frames_THWC: npt.NDArray[np.uint8]
    timestamps_seconds: npt.NDArray[np.float64]
    corrupt: npt.NDArray[np.bool_]
    indices: npt.NDArray[np.int64]
    num_cached: int = 0
    region: PixelBox | None = None

    def __post_init__(self) -> None:
        num_frames = len(self.frames_THWC)
        if self.frames_THWC.ndim != 4 or self.frames_THWC.shape[-1] != 3 or self.frames_THWC.dtype != np.uint8:
            raise ValueError(
                f"frames_THWC must be uint8 (T, H, W, 3), got {self.frames_THWC.dtype} {self.frames_THWC.shape}"
            )
        for name in ("timestamps_seconds", "corrupt", "indices"):
            if getattr(self, name).shape != (num_frames,):
                raise ValueError(f"{name} must have shape ({num_frames},), got {getattr(self, name).shape}")

    def __len__(self) -> int:
        return len(self.frames_THWC)

    def records(self) -> list[FrameRecord]:
        """The frames without their pixels."""
        height, width = self.frames_THWC.shape[1:3]
        data = zip(self.indices.tolist(), self.timestamps_seconds.tolist(), strict=True)
        return [FrameRecord(index, seconds, width, height, self.region) for index, seconds in data]

    def __repr__(self) -> str:  # shapes, never pixels
        return f"FrameBatch(shape={self.frames_THWC.shape}, timestamps_seconds={self.timestamps_seconds.tolist()})"


Rounding = Literal["nearest", "shown"]


@dataclass(frozen=True, slots=True)
class FrameRequest:
    """Frames to decode, at the size that the processor gets. Exactly one of `seconds` and `indices` is given.

    Attributes:
        width, height: of a picture in pixels.
        rounding: the frame of a time: the one that is `shown` then, or the one whose start is `nearest` (the later of
            two).
        unique: return each frame once, even if several times select it. With a variable frame rate the number of frames
            is known only after the file is read.
        within: two times. No frame before the one shown at the first, or after the one shown at the second, is
            selected. None: the whole video.
        region: the part of each frame to show. It is cut out at the decoded size and then resized.
        video: number of the row's video, from 0.

    Raises:
        ValueError: both or neither of `seconds` and `indices`.
    """

    width: int
    height: int
    seconds: tuple[float, ...] | None = None
    indices: tuple[int, ...] | None = None
    rounding: Rounding = "shown"
    unique: bool = False
    within: tuple[float, float] | None = None
    region: Region | None = None
    video: int = 0

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.indices is None):
            raise ValueError("a FrameRequest takes either seconds or indices")

    def __len__(self) -> int:
        """Number of requested frames, an upper bound of the result. Budgets count it."""
        return len(self.seconds if self.seconds is not None else self.indices or ())


@dataclass(frozen=True, slots=True)
class PixelEnvelope:
    """Sizes that the processor does not change: sides that are multiples of `factor`, area within [min, max] pixels.

    The default means no processor, so that frames have the sizes that the method requests.
    """

    factor: int = 1
    min_pixels: int = 1
    max_pixels: int = 1 << 62
