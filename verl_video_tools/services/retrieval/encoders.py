"""What an encoder of frames and texts is, and what the two that there are share.

Axes: T frames, H height, W width, C colour channels, N texts, D dimensions of an embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.types import PixelBox

if TYPE_CHECKING:
    import torch


MAX_CENTRE_ASPECT = 16
"""Of frames whose centre is cropped: more elongated ones are cut to it first. Videos people watch stay whole."""


class Encoder(Protocol):
    """Puts frames and texts into one space. Called by one thread at a time."""

    @property
    def crops_centre(self) -> bool:
        """Whether it sees the middle square of a frame alone (`covering_size`), and not all of it, squeezed."""
        ...

    def image_size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height at which to decode a video of that size, so that the encoder need not resize."""
        ...

    def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, shape (T, D)."""
        ...

    def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, shape (N, D). Longer texts are cut at what the model reads, never an error."""
        ...


def covering_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height in proportion whose shorter one is `side`; the longer one is cut off to whole pixels, as
    torchvision's `Resize` does, so that it has nothing left to do."""
    if width <= height:
        return side, int(side * height / width)
    return int(side * width / height), side


def centre_part(width: int, height: int) -> PixelBox | None:
    """The middle of a very elongated frame, whose ends an encoder that crops the centre never sees; None: all of it.

    Resized as a whole, a frame of 8192x2 pixels would cover 917,504x224.
    """
    longest = MAX_CENTRE_ASPECT * min(width, height)
    left, top = max(0, width - longest) // 2, max(0, height - longest) // 2  # alike at both ends: the centre stays
    return PixelBox(left, top, width - left, height - top) if left or top else None


def normalised(features: torch.Tensor) -> npt.NDArray[np.float32]:
    """Rows divided by their lengths, as NumPy on the host."""
    rows: npt.NDArray[np.float32] = (features / features.norm(dim=-1, keepdim=True)).float().cpu().numpy()
    return rows
