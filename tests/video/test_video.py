"""`Video` as its users see it: sizes, ranges, deadlines, threads, closing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.videos.files import read_number, write_video
from tests.videos.uneven import BURST, LECTURE, SLIDES
from verl_video_tools.core.errors import DeadlineError, FrameRangeError, VideoError
from verl_video_tools.core.types import FrameRequest, VideoInfo
from verl_video_tools.video import Video


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seconds, 120 frames."""
    return write_video(tmp_path_factory.mktemp("video") / "plain.mp4", num_frames=120)


@pytest.fixture
def video(path: Path) -> Video:
    return Video(path)


@pytest.mark.parametrize("seconds", [-0.001, 4.001, 1e9, float("nan"), float("inf"), float("-inf")])
def test_times_outside_are_refused(seconds: float, video: Video) -> None:
    with pytest.raises(FrameRangeError, match=r"4\.0") as caught:
        video.frames_at([1.0, seconds])
    assert str(seconds) in str(caught.value)
    with pytest.raises(FrameRangeError):
        video.index_at(seconds)


@pytest.mark.parametrize("index", [-1, 120, 100_000])
def test_indices_outside_are_refused(index: int, video: Video) -> None:
    with pytest.raises(FrameRangeError, match=str(index)):
        video.frames_at_indices([0, index])


def test_numpy_times_and_indices(video: Video) -> None:
    batch = video.frames_at(np.linspace(0, 4, 5))
    assert batch.indices.tolist() == [0, 30, 60, 90, 119]
    assert video.frames_at_indices(np.array([5, 5, 1])).indices.tolist() == [5, 5, 1]
    assert video.index_at(np.float32(0.5)) == 15


def test_no_frames_asked(video: Video) -> None:
    batch = video.frames_at([], height=28, width=56)
    assert batch.frames_THWC.shape == (0, 28, 56, 3)
    assert batch.indices.tolist() == [] and len(batch.timestamps_seconds) == 0


@pytest.mark.parametrize(
    ("height", "width", "shape"),
    [(None, None, (64, 96)), (32, None, (32, 48)), (None, 48, (32, 48)), (28, 28, (28, 28)), (128, 192, (128, 192))],
)
def test_output_size(height: int | None, width: int | None, shape: tuple[int, int], video: Video) -> None:
    batch = video.frames_at_indices([100, 3], height=height, width=width)
    assert batch.frames_THWC.shape == (2, *shape, 3)
    assert batch.frames_THWC.dtype == np.uint8
    assert [read_number(frame) for frame in batch.frames_THWC] == [100, 3]


@pytest.mark.parametrize("size", [(0, 10), (10, -1)])
def test_impossible_size(size: tuple[int, int], video: Video) -> None:
    with pytest.raises(ValueError, match="at least 1 pixel"):
        video.frames_at_indices([0], *size)


def test_shrinking_averages_instead_of_dropping_pixels(tmp_path: Path) -> None:
    """A one-pixel chequerboard becomes even grey; picking single pixels would keep it black and white."""
    path = write_video(tmp_path / "big.mp4", num_frames=2, width=192, height=128)
    with Video(path) as video:
        native = video.frames_at_indices([1]).frames_THWC[0].astype(float)
        small = video.frames_at_indices([1], height=32, width=48).frames_THWC[0].astype(float)
    means = native.reshape(32, 4, 48, 4, 3).mean(axis=(1, 3))
    assert np.abs(small - means).mean() < 4


def test_requests(video: Video) -> None:
    by_time = video.frames(FrameRequest(width=48, height=32, seconds=(2.0, 0.0)))
    by_index = video.frames(FrameRequest(width=48, height=32, indices=(60, 0)))
    np.testing.assert_array_equal(by_time.frames_THWC, by_index.frames_THWC)
    assert by_time.indices.tolist() == by_index.indices.tolist() == [60, 0]


def test_nearest_frames_go_by_their_own_times(tmp_path: Path) -> None:
    """The average rate says 2.5 s or more from frame to frame, and is of no use here."""
    path = write_video(tmp_path / "uneven.mp4", times_seconds=[0, 1, 9, 10], b_frames=0)
    with Video(path) as video:
        seconds = (0.0, 0.3, 0.5, 0.6, 1.0, 4.9, 5.0, 5.1, 9.4, 9.9, video.info.duration_seconds)
        request = FrameRequest(width=48, height=32, seconds=seconds, rounding="nearest")
        assert video.indices_of(request) == [0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3]
        assert video.frames(request).timestamps_seconds.tolist() == [0, 0, 1, 1, 1, 1, 9, 9, 9, 10, 10]
        inside = replace(request, within=(1.5, 9.9))
        assert video.indices_of(inside) == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("times", [SLIDES, BURST, LECTURE])
def test_the_last_frames_time_is_known_where_the_rate_varies(times: list[float], tmp_path: Path) -> None:
    with Video(write_video(tmp_path / "uneven.mp4", times_seconds=times)) as uneven:
        assert uneven.info.last_seconds == uneven.timestamps_seconds()[-1]
        assert VideoInfo(**uneven.info.to_dict()) == uneven.info


def test_of_an_even_rate_records_hold_no_time_of_the_last_frame(video: Video) -> None:
    assert video.info.last_seconds == pytest.approx(video.timestamps_seconds()[-1])
    assert "uneven_last_seconds" not in video.info.to_dict()


@pytest.mark.parametrize("t", [frame / 30 + 0.5 / 30 for frame in (0, 7, 58, 97, 118)])
def test_half_way_the_later_frame_is_nearest(t: float, video: Video) -> None:
    request = FrameRequest(width=48, height=32, seconds=(t, t - 1e-4), rounding="nearest")
    assert video.indices_of(request) == [int(t * 30) + 1, int(t * 30)]


def test_deadline(path: Path, video: Video) -> None:
    with pytest.raises(DeadlineError, match=r"plain\.mp4"):
        video.frames_at_indices([119], deadline_seconds=0.0)
    with pytest.raises(TimeoutError):
        Video(path.with_suffix(".mp4"), deadline_seconds=0.0)
    assert read_number(video.frames_at_indices([119], deadline_seconds=30.0).frames_THWC[0]) == 119


def test_deadline_counts_waiting_for_another_thread(video: Video) -> None:
    with video._lock, pytest.raises(DeadlineError):
        video.frames_at([1.0], deadline_seconds=0.05)
    assert video.frames_at([1.0], deadline_seconds=5.0).indices.tolist() == [30]


def test_an_error_leaves_the_video_usable(video: Video) -> None:
    for _ in range(3):
        with pytest.raises(DeadlineError):
            video.frames_at_indices([7, 100], deadline_seconds=0.0)
        assert [read_number(f) for f in video.frames_at_indices([100, 7]).frames_THWC] == [100, 7]


def test_closed_video(path: Path) -> None:
    with Video(path) as video:
        batch = video.frames_at([1.0])
    assert video.closed
    with pytest.raises(VideoError, match="closed"):
        video.frames_at([1.0])
    video.close()
    assert batch.indices.tolist() == [30]


def test_a_dropped_video_frees_its_file_at_once(tmp_path: Path) -> None:
    path = write_video(tmp_path / "own.mp4", num_frames=40)

    def open_files() -> int:
        return sum(os.path.samefile(link, path) for link in Path("/proc/self/fd").iterdir() if link.exists())

    gc.disable()
    try:
        video = Video(path)
        video.frames_at([1.0])
        assert open_files() == 1
        del video
        assert open_files() == 0
    finally:
        gc.enable()


def test_threads_share_a_video(video: Video) -> None:
    barrier = threading.Barrier(4)

    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(10):
            indices = rng.integers(0, 120, 4).tolist()
            batch = video.frames_at_indices(indices)
            if [read_number(frame) for frame in batch.frames_THWC] != indices or batch.indices.tolist() != indices:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_names_that_ffmpeg_would_take_for_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "a:b %03d.mp4")
    monkeypatch.chdir(tmp_path)
    assert Video("a:b %03d.mp4").info.num_frames == 60


def test_import_is_light() -> None:
    code = (
        "import sys, verl_video_tools.video; print([m for m in ('torch', 'transformers', 'verl') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
