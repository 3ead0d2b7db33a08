"""An encoder without a model: the colour of a frame against the name of a colour, and counts of what it was asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

COLOURS = {"red": (1.0, 0.0, 0.0), "green": (0.0, 1.0, 0.0), "blue": (0.0, 0.0, 1.0)}


class ColourEncoder:
    """Frames by their mean colour; texts by the colour they name, else grey."""

    crops_centre = False

    def __init__(self) -> None:
        self.image_batches: list[int] = []
        self.text_batches: list[list[str]] = []
        self.fails = False

    def image_size(self, width: int, height: int) -> tuple[int, int]:
        return 16, 16

    def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        self._check()
        self.image_batches.append(len(frames_THWC))
        return _unit(frames_THWC.reshape(len(frames_THWC), -1, 3).mean(axis=1) + 1e-3)

    def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        self._check()
        self.text_batches.append(texts)
        return _unit(np.array([COLOURS.get(text.split()[-1], (1.0, 1.0, 1.0)) for text in texts]))

    def _check(self) -> None:
        if self.fails:
            raise RuntimeError("out of memory")


def _unit(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
