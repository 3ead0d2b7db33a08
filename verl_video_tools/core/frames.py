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
    """Facts probed from a file, never taken from a row. Width and height are as displayed (rotation applied)."""

    duration_seconds: float
    num_frames: int
    average_fps: float
    width: int
    height: int
    uneven_last_seconds: float | None = None
    """Time of the last frame where the average rate does not tell it. Records hold it where it is not None."""

    @property
    def last_seconds(self) -> float:
        """Time of the last frame."""
        if self.uneven_last_seconds is not None:
            return self.uneven_last_seconds
        return (self.num_frames - 1) / self.average_fps

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the arguments of its class."""
        data = asdict(self)
        if self.uneven_last_seconds is None:
            del data["uneven_last_seconds"]
        return data


@dataclass(frozen=True, slots=True)
class Tile:
    """One frame of a picture that shows several."""

    index: int
    timestamp_seconds: float


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """What one shown picture was: the part of a frame that is kept after its pixels are gone.

    Width and height are in pixels, as handed to the processor.

    Attributes:
        region: the part of the displayed frame that is shown; None where all of it is.
        tiles: the frames of a grid, row by row; index and time above are the first one's. Empty for a single frame.
    """

    index: int
    timestamp_seconds: float
    width: int
    height: int
    region: PixelBox | None = None
    tiles: tuple[Tile, ...] = ()
    video: int = 0
    """Which of several videos of a row it is from, from 0. Records hold it where it is not 0."""

    @property
    def single_frames(self) -> tuple[FrameRecord | Tile, ...]:
        """The frames of the video that the picture shows, each with an index and a time: those of a grid, or itself."""
        return self.tiles or (self,)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `region` (left, top, right, bottom), `tiles` and `video` only where they say something."""
        data: dict[str, Any] = {
            "index": self.index,
            "timestamp_seconds": self.timestamp_seconds,
            "width": self.width,
            "height": self.height,
        }
        if self.region is not None:
            data["region"] = list(self.region)
        if self.tiles:
            data["tiles"] = [{"index": tile.index, "timestamp_seconds": tile.timestamp_seconds} for tile in self.tiles]
        if self.video:
            data["video"] = self.video
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FrameRecord:
        """The inverse of `to_dict`."""
        region = None if data.get("region") is None else PixelBox(*data["region"])
        tiles = tuple(Tile(**tile) for tile in data.get("tiles", ()))
        return cls(**{**data, "region": region, "tiles": tiles})


@dataclass(frozen=True)
class FrameBatch:
    """Decoded frames with the presentation times that the decoder reported; order and duplicates as requested.

    Attributes:
        frames_THWC: uint8 RGB.
        timestamps_seconds: float64, shape (T,).
        corrupt: bool, shape (T,); True where the nearest decodable frame stands in for a damaged one.
        indices: int64, shape (T,); numbers of the frames shown, in presentation order of the file.
        num_cached: frames that came from a cache.
        region: the part of each displayed frame that was cut out; None where all of it is shown.
        tiles: where each picture is a grid of frames, those of each; times and indices are then their first one's, and
            a picture is `corrupt` if any of its frames is, and cached if all of them are.
    """

    frames_THWC: npt.NDArray[np.uint8]
    timestamps_seconds: npt.NDArray[np.float64]
    corrupt: npt.NDArray[np.bool_]
    indices: npt.NDArray[np.int64]
    num_cached: int = 0
    region: PixelBox | None = None
    tiles: tuple[tuple[Tile, ...], ...] = ()

    def __post_init__(self) -> None:
        num_frames = len(self.frames_THWC)
        if self.frames_THWC.ndim != 4 or self.frames_THWC.shape[-1] != 3 or self.frames_THWC.dtype != np.uint8:
            raise ValueError(
                f"frames_THWC must be uint8 (T, H, W, 3), got {self.frames_THWC.dtype} {self.frames_THWC.shape}"
            )
        for name in ("timestamps_seconds", "corrupt", "indices"):
            if getattr(self, name).shape != (num_frames,):
                raise ValueError(f"{name} must have shape ({num_frames},), got {getattr(self, name).shape}")
        if self.tiles and len(self.tiles) != num_frames:
            raise ValueError(f"tiles must be told of each of {num_frames} pictures, got {len(self.tiles)}")

    def __len__(self) -> int:
        return len(self.frames_THWC)

    def records(self) -> list[FrameRecord]:
        """What each frame is, without its pixels."""
        height, width = self.frames_THWC.shape[1:3]
        tiles = self.tiles or ((),) * len(self)
        data = zip(self.indices.tolist(), self.timestamps_seconds.tolist(), tiles, strict=True)
        return [FrameRecord(index, seconds, width, height, self.region, of) for index, seconds, of in data]

    def __repr__(self) -> str:  # shapes, never pixels
        return f"FrameBatch(shape={self.frames_THWC.shape}, timestamps_seconds={self.timestamps_seconds.tolist()})"


Rounding = Literal["nearest", "shown"]


@dataclass(frozen=True, slots=True)
class FrameRequest:
    """Frames to decode, at the size that the processor gets. Exactly one of `seconds` and `indices` is given.

    Attributes:
        width, height: of a picture in pixels.
        rounding: which frame a time means, the one `shown` then or the one that begins `nearest` to it, half way the
            later one.
        unique: each frame comes once, though several times mean it; so fewer frames than times may come. Where the
            frame rate varies, this is not known before the file is asked.
        within: two times; no time means a frame before the one shown at the first, or after the one shown at the
            second. None: the whole video.
        region: the part of each frame to show. It is cut out of the frame as decoded, at its full size, and then
            resized.
        grid: (columns, rows) of one picture that shows all the frames, row by row; cells that no frame fills are
            black. None shows a picture per frame.
        video: which of several videos of a row, from 0.

    Raises:
        ValueError: both or neither of `seconds` and `indices`; a grid with fewer cells than frames, or whose cells are
            no whole pixels.
    """

    width: int
    height: int
    seconds: tuple[float, ...] | None = None
    indices: tuple[int, ...] | None = None
    rounding: Rounding = "shown"
    unique: bool = False
    within: tuple[float, float] | None = None
    region: Region | None = None
    grid: tuple[int, int] | None = None
    video: int = 0

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.indices is None):
            raise ValueError("a FrameRequest takes either seconds or indices")
        if self.grid is not None:
            columns, rows = self.grid
            if min(columns, rows) < 1 or not 1 <= self.num_frames <= columns * rows:
                raise ValueError(f"a grid of {columns}x{rows} cells cannot show {self.num_frames} frames")
            if self.width % columns or self.height % rows:
                raise ValueError(f"{self.width}x{self.height} pixels do not divide into {columns}x{rows} cells")

    @property
    def num_frames(self) -> int:
        """Number of frames asked for, the most that can come."""
        return len(self.seconds if self.seconds is not None else self.indices or ())

    def __len__(self) -> int:
        """Number of pictures asked for, the most that can come: what budgets count."""
        return self.num_frames if self.grid is None else 1


@dataclass(frozen=True, slots=True)
class PixelEnvelope:
    """What the processor leaves untouched: sides that are multiples of `factor`, area within [min, max] pixels.

    The default says "no processor": sizes are then whatever the method asks for.
    """

    factor: int = 1
    min_pixels: int = 1
    max_pixels: int = 1 << 62
