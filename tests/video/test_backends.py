"""The other backend: the frames that decoding in sequence gives, or an error; never another frame."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.video.conftest import Reference
from tests.videos.files import write_video
from verl_video_tools.core.errors import BackendError, DeadlineError, SetupError, UnreadableVideoError, UsageError
from verl_video_tools.video import Video

DECODABLE = {"h264.mp4", "uneven.mkv", "hevc.mp4", "vp9.webm", "rotated_90.mp4"}
"""Representative kinds that torchcodec must get right; of the others it may say that it cannot."""


@pytest.fixture(scope="module")
def backend() -> str:
    try:
        import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"torchcodec does not load: {str(error).strip().splitlines()[0]}")
    return "torchcodec"


def test_the_same_frames_or_an_error(backend: str, reference: Reference) -> None:
    rng = random.Random(f"{backend} {reference.path.name}")  # other places in every file
    count = len(reference.numbers)
    requests = [[rng.randrange(count) for _ in range(6)], list(range(min(8, count)))]
    num_right = 0
    try:
        video = Video(reference.path, deadline_seconds=5.0, backend=backend)
    except (BackendError, DeadlineError) as error:
        assert backend in str(error) or isinstance(error, DeadlineError)
    else:
        with video:
            assert video.info.num_frames == count
            for indices in requests:
                try:
                    batch = video.frames_at_indices(indices, deadline_seconds=5.0)
                except (BackendError, DeadlineError) as error:
                    assert backend in str(error) or isinstance(error, DeadlineError)
                else:
                    num_right += 1
                    assert_same(batch, indices, reference)
    if reference.path.name in DECODABLE:
        assert num_right == len(requests)


def assert_same(batch, indices: list[int], reference: Reference) -> None:
    """Each is most like its own of all pictures of the file; no exact copy, as chroma is upsampled otherwise."""
    pictures = np.stack(reference.pictures).astype(np.int16)
    differences = [np.abs(pictures - frame).mean(axis=(1, 2, 3)) for frame in batch.frames_THWC]
    assert [int(difference.argmin()) for difference in differences] == indices
    assert max(difference.min() for difference in differences) < 8
    assert batch.timestamps_seconds.tolist() == [reference.timestamps_seconds[index] for index in indices]
    assert batch.indices.tolist() == indices
    assert not batch.corrupt.any()


@pytest.mark.parametrize("rotation_degrees", [0, 90])
def test_mirrored_files_are_refused(backend: str, rotation_degrees: int, tmp_path: Path) -> None:
    path = write_video(tmp_path / "m.mp4", num_frames=9, rotation_degrees=rotation_degrees, mirrored=True)
    with pytest.raises(BackendError, match=f"{backend}: the display matrix mirrors"):
        Video(path, backend=backend)


def test_torchcodec_scales_alike(backend: str, reference_of: Callable[[str], Reference]) -> None:
    reference = reference_of("h264.mp4")
    with Video(reference.path) as exact, Video(reference.path, backend=backend) as other:
        expected = exact.frames_at_indices([3, 90], height=32, width=48).frames_THWC.astype(int)
        got = other.frames_at_indices([3, 90], height=32, width=48).frames_THWC
        assert got.shape == (2, 32, 48, 3)
        assert np.abs(got - expected).mean() < 3


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, reference_of: Callable[[str], Reference]) -> None:
    path = reference_of("h264.mp4").path
    assert Video(path).backend == "pyav"
    monkeypatch.setenv("VVT_VIDEO_BACKEND", "torchcodec")
    assert Video(path, backend="pyav").backend == "pyav"
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    with pytest.raises(SetupError, match="the backend 'torchcodec' needs"):
        Video(path)
    monkeypatch.setenv("VVT_VIDEO_BACKEND", "opencv")
    with pytest.raises(UsageError, match=r"VVT_VIDEO_BACKEND must be one of pyav, .*'opencv'"):
        Video(path)
    with pytest.raises(UsageError, match="backend must be one of"):
        Video(path, backend="Torchcodec")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, reference_of: Callable[[str], Reference]) -> None:
    for module in ("torchcodec", "torchcodec.decoders"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it is an ImportError
    with pytest.raises(SetupError, match=r"torchcodec==.*extra 'torchcodec'"):
        Video(reference_of("h264.mp4").path, backend="torchcodec")


def test_a_video_that_was_released_goes_on(backend: str, tmp_path: Path) -> None:
    reference = Reference(write_video(tmp_path / "plain.mp4", num_frames=60))
    with Video(reference.path, backend=backend) as video:
        for index in (50, 7):
            video.release()
            assert not video.is_open and not video.closed
            assert video.frames_at_indices([index]).indices.tolist() == [index]
            assert video.is_open
        video.release()
        write_video(reference.path, num_frames=61)
        with pytest.raises(UnreadableVideoError, match="the file was changed while it was in use"):
            video.frames_at_indices([50])
        assert video.closed


def test_a_frame_with_another_time_is_refused(backend: str, reference_of: Callable[[str], Reference]) -> None:
    """As if the backend had decoded the frame after the one asked for."""
    with Video(reference_of("h264.mp4").path, backend=backend) as video:
        video._reader.index.frame_pts[50] += 3000
        with pytest.raises(BackendError, match=rf"{backend}: .*50.*use the backend 'pyav'"):
            video.frames_at_indices([50])
