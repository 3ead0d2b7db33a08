"""What the tests of our tools in verl's own tool loop show and look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.videos.files import read_number

NUM_FRAMES = 300
ZOOM = [101, 115, 129, 143, 157, 171, 185, 199]
"""What choose_frames(100, 200) shows with 8 frames."""
INITIAL_FRAMES = [0, 42, 85, 128, 170, 213, 256, 299]


def numbers(images: list[Any] | None) -> list[int]:
    return [read_number(np.asarray(image)) for image in images or []]
