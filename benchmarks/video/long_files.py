"""Long videos as ordinary players make them, for measuring the cost of random access.

A camera pans over texture, an object moves across it, the sensor is noisy and the scene is cut every few seconds; x264
then chooses key frames itself (scene cuts, at most 250 frames apart), with B-frames. One short encode is copied, packet
by packet, as often as it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from tests.videos.files import Barcode, remux

STRIP = Barcode(columns=14, rows=1, height_share=0.125)
"""The frame's number within one copy, in a strip along the top."""

NUM_TEXTURES = 6
NOISE_LEVELS = 3.4
"""Standard deviation of the sensor's noise, in steps of 8-bit brightness."""


@dataclass(frozen=True, slots=True)
class LongVideo:
    """How a long file is made.

    Attributes:
        copy_seconds: length of the one encode.
        copies: how often it follows itself.
    """

    name: str
    width: int
    height: int
    copy_seconds: int
    copies: int
    fps: int = 30

    @property
    def frames_per_copy(self) -> int:
        return self.copy_seconds * self.fps

    @property
    def num_frames(self) -> int:
        return self.frames_per_copy * self.copies

    @property
    def file_name(self) -> str:
        """Tells everything that the pixels depend on, so that a cached file is never a stale one."""
        return f"{self.name}_{self.width}x{self.height}_{self.copy_seconds}s_x{self.copies}_v{RECIPE_VERSION}.mp4"

    def number_of(self, index: int) -> int:
        """The number that frame `index` shows."""
        return index % self.frames_per_copy


RECIPE_VERSION = 1
"""Raise with every change to the pictures or to the encoder's options."""


def write_long_video(video: LongVideo, folder: Path) -> Path:
    """Make the file, or return the one made before. Minutes of CPU time for an hour of video."""
    path = folder / video.file_name
    if path.exists():
        return path
    once, joined = path.with_suffix(".once.mp4"), path.with_suffix(".part.mp4")
    _encode(video, once)
    remux(once, joined, times=video.copies, container_options={"movflags": "faststart"})
    once.unlink()
    joined.rename(path)
    return path


def _encode(video: LongVideo, path: Path) -> None:
    scenes = _Scenes(video.width, video.height)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=video.fps, options={"preset": "fast"})
        stream.width, stream.height, stream.pix_fmt = video.width, video.height, "yuv420p"
        for number in range(video.frames_per_copy):
            frame = av.VideoFrame.from_ndarray(scenes.picture(number), format="yuv420p")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


class _Scenes:
    """Pictures in planes of brightness and colour (yuv420p), frame after frame."""

    def __init__(self, width: int, height: int) -> None:
        self._rng = np.random.default_rng(0)
        self._width, self._height = width, height
        margin = 400
        self._textures = [_texture(self._rng, height + margin, width + margin) for _ in range(NUM_TEXTURES)]
        self._noise = self._rng.normal(0, NOISE_LEVELS, (8, height, width)).round().astype(np.int16)
        self._frames_left = 0

    def _cut(self) -> None:
        self._frames_left = int(self._rng.integers(60, 290))
        self._scene = self._rng.permutation(NUM_TEXTURES)[:3]
        self._place = self._rng.uniform(0, 100, 2)
        self._pan = self._rng.uniform(-1, 1, 2)
        self._object = self._rng.uniform(0.2, 0.8, 2) * (self._height, self._width)
        self._object_pan = self._rng.uniform(-3, 3, 2)

    def picture(self, number: int) -> npt.NDArray[np.uint8]:
        """The next picture, (3/2 H, W) uint8; its number stands in the strip."""
        if self._frames_left == 0:
            self._cut()
        self._frames_left -= 1
        self._place = np.clip(self._place + self._pan, 0, 398)
        self._object = (self._object + self._object_pan) % (self._height, self._width)
        height, width = self._height, self._width
        y, x = (int(value) for value in self._place)
        luma = self._textures[self._scene[0]][y : y + height, x : x + width].copy()
        size = height // 6
        top, left = (int(value) for value in self._object)
        luma[top : top + size, left : left + size] = 255 - luma[top : top + size, left : left + size]
        luma += self._noise[self._rng.integers(len(self._noise))]
        np.clip(luma, 16, 235, out=luma)
        planes = np.empty((height * 3 // 2, width), dtype=np.uint8)
        planes[:height] = luma
        chroma = [self._textures[which][y // 2 :, x // 2 :][: height // 2, : width // 2] for which in self._scene[1:]]
        planes[height:] = (np.stack(chroma) // 2 + 64).reshape(height // 2, width)
        STRIP.draw(planes[:height, :, None], number)
        rows = STRIP.num_rows(height) // 4
        planes[height : height + rows] = 128  # no colour in the strip, in either plane
        planes[height + height // 4 : height + height // 4 + rows] = 128
        return planes


def _texture(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.int16]:
    """Random brightness with structure at several sizes."""
    total = np.zeros((height, width))
    for cell in (160, 64, 24, 8):
        coarse = rng.normal(0, 1, (height // cell + 2, width // cell + 2))
        rows, columns = np.arange(height) / cell, np.arange(width) / cell
        row, column = rows.astype(int), columns.astype(int)
        down, right = (rows - row)[:, None], (columns - column)[None, :]
        upper = coarse[row][:, column] * (1 - right) + coarse[row][:, column + 1] * right
        lower = coarse[row + 1][:, column] * (1 - right) + coarse[row + 1][:, column + 1] * right
        total += (upper * (1 - down) + lower * down) * cell**0.5
    return (126 + 40 * total / total.std()).clip(16, 235).astype(np.int16)
