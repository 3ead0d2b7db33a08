"""A part of a file named as its media fragment is a video of its own: its frames and no other, from time 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.video.conftest import Reference
from tests.video.test_backends import DECODABLE, skip_unless_usable
from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import UnreadableVideoError, VideoNotFoundError
from verl_video_tools.core.sample import Clip, clip_path, read_clip
from verl_video_tools.core.types import FrameRequest
from verl_video_tools.video import Video, decode_frames, open_video
from verl_video_tools.video.video import file_identity


@pytest.fixture(scope="module")
def ten_seconds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 frames, each with its number."""
    return write_video(tmp_path_factory.mktemp("clips") / "ten seconds.mp4", num_frames=100, fps=10)


def test_names_of_clips() -> None:
    assert clip_path("/d/v.mp4", 2.0, 10 / 3) == "/d/v.mp4#t=2,3.333"
    assert read_clip("/d/v.mp4#t=2,3.333") == Clip("/d/v.mp4", (2.0, 3.333))
    for whole in ("/d/v.mp4", "/d/v#t.mp4", "v.mp4#t=2", "v.mp4#t=2,3.mp4", "v.mp4#t=-1,3"):
        assert read_clip(whole) == Clip(whole, None)
    for start, end in ((3.0, 3.0), (-1.0, 2.0), (4.0, 3.0), (float("nan"), 2.0)):
        with pytest.raises(ValueError, match="0 <= start < end"):
            clip_path("v.mp4", start, end)


def test_a_clip_shows_its_frames_and_no_other(ten_seconds: Path) -> None:
    with Video(clip_path(ten_seconds, 2.0, 4.5)) as clip:
        info = clip.info
        assert (info.num_frames, info.average_fps) == (25, 10.0) and info.duration_seconds == pytest.approx(2.5)
        batch = clip.frames_at_indices(range(25))
        assert [read_number(frame) for frame in batch.frames_THWC] == list(range(20, 45))
        assert batch.timestamps_seconds == pytest.approx(np.arange(25) / 10)
        assert batch.indices.tolist() == list(range(25))
        assert [read_number(frame) for frame in clip.frames_at([0.0, 1.0, 2.5]).frames_THWC] == [20, 30, 44]
        with pytest.raises(ValueError, match="outside"):
            clip.frames_at_indices([25])


def test_ends_beyond_the_file_and_times_between_frames(ten_seconds: Path) -> None:
    for (start, end), numbers in {
        (9.75, 60.0): [98, 99],
        (0.0, 0.05): [0],
        (3.34, 3.51): [34, 35],
        (0.1, 0.2): [1],
    }.items():
        with Video(clip_path(ten_seconds, start, end)) as clip:
            shown = clip.frames_at_indices(range(clip.info.num_frames)).frames_THWC
            assert [read_number(frame) for frame in shown] == numbers, (start, end)
    for start, end in ((10.0, 20.0), (3.34, 3.36)):
        with pytest.raises(UnreadableVideoError, match="no frame that begins in this part"):
            Video(clip_path(ten_seconds, start, end))
    with pytest.raises(VideoNotFoundError):
        Video(clip_path(ten_seconds.with_name("gone.mp4"), 1.0, 2.0))


def test_a_clip_of_each_kind_of_file(reference: Reference) -> None:
    compare_middle(reference, "pyav")


@pytest.mark.parametrize("backend", sorted(DECODABLE))
def test_a_clip_by_each_backend(backend: str, reference_of: Callable[[str], Reference]) -> None:
    skip_unless_usable(backend)
    compare_middle(reference_of("h264.mp4"), backend)


def compare_middle(reference: Reference, backend: str) -> None:
    """The clip that is the middle third of a file shows the file's frames, from time 0."""
    with Video(reference.path) as video:
        times = video.timestamps_seconds()
    first, after = len(times) // 3, 2 * len(times) // 3
    path = clip_path(reference.path, float(times[first]), float(times[after]))
    with Video(path, backend=backend) as clip:
        batch = clip.frames_at_indices(range(after - first))
        assert clip.info.num_frames == after - first
    pictures = np.stack(reference.pictures).astype(np.int16)
    nearest = [int(np.abs(pictures - frame).mean(axis=(1, 2, 3)).argmin()) for frame in batch.frames_THWC]
    assert nearest == list(range(first, after))
    assert batch.timestamps_seconds == pytest.approx(times[first:after] - times[first])


async def test_clips_share_no_frame_with_their_file(ten_seconds: Path) -> None:
    """Caches know frames by file and index, and a clip's indices are its own."""
    clip = clip_path(ten_seconds, 5.0, 6.0)
    other = clip_path(ten_seconds, 5.0, 7.0)
    assert len({file_identity(path) for path in (ten_seconds, clip, other)}) == 3
    request = FrameRequest(96, 64, indices=(0, 3))
    for path, numbers in [(ten_seconds, [0, 3]), (clip, [50, 53]), (ten_seconds, [0, 3]), (clip, [50, 53])]:
        batch = await decode_frames(await open_video(path), request, 30.0)
        assert [read_number(frame) for frame in batch.frames_THWC] == numbers
