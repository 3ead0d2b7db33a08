"""A small video of three colours in turn."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

NUM_FRAMES, GOP_FRAMES, PERIOD = 90, 10, 30
"""Frames 0 to 29 are red, 30 to 59 green, 60 to 89 blue; every tenth is a key frame."""


def write_colours(path: Path, width: int = 32, height: int = 32) -> str:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"g": str(GOP_FRAMES), "keyint_min": str(GOP_FRAMES)})
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for index in range(NUM_FRAMES):
            picture_HWC = np.full((height, width, 3), 20, np.uint8)
            picture_HWC[..., index // PERIOD] = 220
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture_HWC, format="rgb24")))
        container.mux(stream.encode(None))
    return str(path)


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_colours(tmp_path_factory.mktemp("retrieval") / "colours.mp4")
