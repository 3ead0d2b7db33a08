"""examples/frame_selector: a flash that the even initial frames miss is among the most different frames."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from tests.examples.conftest import EXAMPLES
from verl_video_tools.core.types import Sample
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

FLASH = range(25, 28)


def write_flash(path: Path, num_frames: int = 64) -> str:
    """Grey, but for three red frames."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 36, "yuv420p"
        stream.codec_context.thread_count = 1
        for index in range(num_frames):
            picture_HWC = np.full((36, 64, 3), 90, np.uint8)
            if index in FLASH:
                picture_HWC[..., 0] = 250
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture_HWC, format="rgb24")))
        container.mux(stream.encode(None))
    return str(path)


async def plan_initial_frames(video: str, **fields: object) -> list[int]:
    sample = Sample(question="What flashes?", ground_truth="A", video_path=video, question_type="mc")
    episode = Episode(get_method("framethinker", initial_frames=4, **fields), sample)
    assert await episode.start() is not None
    return [frame.index for frame in episode.trajectory.initial_frames]


async def test_the_flash_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "frame_selector"))
    video = write_flash(tmp_path / "flash.mp4")
    assert not set(await plan_initial_frames(video)) & set(FLASH)
    chosen = await plan_initial_frames(video, initial_frames_selector="most_different:most_different")
    assert len(set(chosen)) == 4 and chosen == sorted(chosen)
    assert set(chosen) & set(FLASH)


async def test_a_video_shorter_than_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "frame_selector"))
    video = write_flash(tmp_path / "short.mp4", num_frames=3)
    assert await plan_initial_frames(video, initial_frames_selector="most_different:most_different") == [0, 1, 2]
