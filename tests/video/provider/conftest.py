"""A video of ten groups of frames, and what its decoder is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.videos.files import write_video
from verl_video_tools.video import Video


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames in groups of 30."""
    return write_video(tmp_path_factory.mktemp("video") / "plain.mp4", num_frames=300, gop_frames=30)


@pytest.fixture
def video(path: Path) -> Iterator[Video]:
    with Video(path) as video:
        yield video


@pytest.fixture
def decoded(video: Video) -> list[int]:
    """Indices that `video` hands to its decoder, in order."""
    indices: list[int] = []
    real_decode = video._reader.decode

    def decode(wanted: Sequence[int], deadline: Any) -> Any:
        indices.extend(wanted)
        return real_decode(wanted, deadline)

    video._reader.decode = decode
    return indices
