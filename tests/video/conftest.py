"""Test videos of many kinds, written once per session, each with its reference: every frame decoded in sequence."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from tests.videos.files import read_number
from tests.videos.kinds import WRITERS
from verl_video_tools.video.frame_converter import FrameConverter


@dataclass(frozen=True)
class Reference:
    """What decoding a file from start to end shows, in order."""

    path: Path

    @cached_property
    def _frames(self) -> list[tuple[Fraction, npt.NDArray[np.uint8]]]:
        maker = FrameConverter()
        frames = []
        with av.open(str(self.path)) as container:
            container.streams.video[0].codec_context.thread_count = 1
            for frame in container.decode(video=0):
                turned = frame.rotation % 180 != 0
                width, height = (frame.height, frame.width) if turned else (frame.width, frame.height)
                frames.append((frame.pts * frame.time_base, maker.convert(frame, width, height)))
        return frames

    @cached_property
    def pictures(self) -> list[npt.NDArray[np.uint8]]:
        return [picture for _, picture in self._frames]

    @cached_property
    def timestamps_seconds(self) -> list[float]:
        return [float(time - self._frames[0][0]) for time, _ in self._frames]

    @cached_property
    def numbers(self) -> list[int]:
        return [read_number(picture) for picture in self.pictures]

    def index_at(self, seconds: float) -> int:
        return bisect_right(self.timestamps_seconds, seconds) - 1


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The reference of a file of `WRITERS` by name; writes the file when it is first asked for."""
    folder = tmp_path_factory.mktemp("videos")
    references: dict[str, Reference] = {}

    def get(name: str) -> Reference:
        if name not in references:
            references[name] = Reference(WRITERS[name](folder / name))
        return references[name]

    return get


@pytest.fixture(scope="session", params=sorted(WRITERS))
def reference(request: pytest.FixtureRequest, reference_of: Callable[[str], Reference]) -> Reference:
    """Each kind of file in turn."""
    return reference_of(request.param)
