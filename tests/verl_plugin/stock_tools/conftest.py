"""Two videos of the same frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verl_plugin.stock_tools.shown import NUM_FRAMES
from tests.videos.files import write_video


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames at 30 per second: 10 s."""
    return write_video(tmp_path_factory.mktemp("videos") / "clip.mp4", num_frames=NUM_FRAMES, fps=30)


@pytest.fixture(scope="module")
def slow_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same frames at 10 per second: 30 s."""
    return write_video(tmp_path_factory.mktemp("videos") / "slow.mp4", num_frames=NUM_FRAMES, fps=10)
