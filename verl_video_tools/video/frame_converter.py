"""From a decoded frame to RGB pixels at the requested size."""

from __future__ import annotations

import av
import numpy as np
import numpy.typing as npt
from av.sidedata.sidedata import SideDataContainer
from av.sidedata.sidedata import Type as SideDataType
from av.video.reformatter import Interpolation, VideoReformatter

from verl_video_tools.core.regions import PixelBox, scaled

# Area averaging with exact rounding and full chroma comes within 40 dB of the antialiased bicubic resize that image
# processors do, at half its cost; without the two flags it is 34 dB. When nothing shrinks, bicubic costs little.
EXACT = Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
SHRINK = Interpolation.AREA | EXACT
ENLARGE = Interpolation.BICUBIC | EXACT


def quarter_turns(frame: av.VideoFrame) -> int:
    """Counter-clockwise quarter turns, 0 to 3, that a player makes to show a frame upright.

    A frame that `is_mirrored` is turned over top to bottom before.
    """
    return round(frame.rotation / 90) % 4


def is_mirrored(frame: av.VideoFrame) -> bool:
    """Whether the frame's display matrix mirrors, besides any turn."""
    try:
        # Not `frame.side_data`: frame and container would hold each other, and pixels stay until a garbage collection.
        # PyAV's stubs leave out what the constructor takes.
        matrix = SideDataContainer(frame).get(SideDataType.DISPLAYMATRIX)  # type: ignore[call-arg]
    except ValueError:  # data of a kind that PyAV does not know lies beside it
        return False
    if matrix is None:
        return False
    a, b, _, c, d = (int(entry) for entry in np.frombuffer(matrix, np.int32)[:5])
    return a * d - b * c < 0


def display_size(frame: av.VideoFrame) -> tuple[int, int]:
    """(width, height) of a frame as shown, rotation applied. Pixels are taken to be square."""
    return (frame.height, frame.width) if quarter_turns(frame) % 2 else (frame.width, frame.height)


MAX_SIZES = 16
"""Sizes whose scalers are kept: a ladder of resolutions takes turns between its rungs' sizes, and making a scaler's
tables anew for every frame costs as much as the frame."""


class FrameConverter:
    """Converts and scales frames; keeps the scalers' tables between frames of like size. Not thread-safe."""

    def __init__(self) -> None:
        self._scalers: dict[tuple[int, int], tuple[VideoReformatter, VideoReformatter]] = {}
        self._parts: FrameConverter | None = None
        """For parts, whose many sizes would else drive out the scalers of whole frames."""

    def convert(self, frame: av.VideoFrame, width: int, height: int) -> npt.NDArray[np.uint8]:
        """RGB pixels (H, W, 3) uint8, upright, at exactly width x height."""
        turns = quarter_turns(frame)
        coded_width, coded_height = (height, width) if turns % 2 else (width, height)
        scaler, packer = self._scalers_for(width, height)
        shrinks = coded_width * coded_height < frame.width * frame.height
        # To planes first: libswscale has fast code for scaling into planes and for packing them, but not for both at
        # once. The pixels are the same, in half the time.
        planes = scaler.reformat(
            frame,
            width=coded_width,
            height=coded_height,
            format="gbrp",
            interpolation=SHRINK if shrinks else ENLARGE,
            threads=1,  # by default as many as there are CPUs
        )
        rgb = packer.reformat(planes, format="rgb24", threads=1)
        pixels_HWC = rgb.to_ndarray()
        return np.rot90(np.flipud(pixels_HWC) if is_mirrored(frame) else pixels_HWC, turns)

    def crop(
        self, frame: av.VideoFrame, width: int, height: int, region: PixelBox, region_of: tuple[int, int]
    ) -> npt.NDArray[np.uint8]:
        """As `convert`, of a part of the frame: all of it in RGB at its own size, cut, and then resized.

        Not cut out of the decoder's planes, which would be cheaper: their colours are of half the size, and pixels at
        the edges would differ from the whole frame's.

        Args:
            region: of the upright frame.
            region_of: width and height of the frame that `region` counts the pixels of.
        """
        size = display_size(frame)
        left, top, right, bottom = scaled(region, region_of, size)
        part_HWC = np.ascontiguousarray(self.convert(frame, *size)[top:bottom, left:right])
        if self._parts is None:
            self._parts = FrameConverter()
        return self._parts.convert(av.VideoFrame.from_ndarray(part_HWC, format="rgb24"), width, height)

    def _scalers_for(self, width: int, height: int) -> tuple[VideoReformatter, VideoReformatter]:
        if (width, height) not in self._scalers:
            if len(self._scalers) >= MAX_SIZES:
                self._scalers.clear()
            self._scalers[width, height] = VideoReformatter(), VideoReformatter()
        return self._scalers[width, height]
