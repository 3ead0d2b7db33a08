"""The other backends: the frames that decoding in sequence gives, or an error; never another frame."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.video.conftest import Reference
from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import BackendError, DeadlineError, SetupError, UnreadableVideoError, UsageError
from verl_video_tools.video import Video

DECODABLE = {
    "torchcodec": {"h264.mp4", "uneven.mkv", "hevc.mp4", "vp9.webm", "rotated_90.mp4"},
    "decord": {"h264.mp4", "uneven.mkv", "rotated_90.mp4"},
}
"""Representative kinds that a backend must get right; of the others it may say that it cannot."""


@cache
def load_error(backend: str) -> str | None:
    """Why a backend cannot be used here, None if it can."""
    if backend == "torchcodec":  # in this process, as the backend loads it: another would import torch again
        try:
            import_module("torchcodec.decoders")
        except (ImportError, OSError, RuntimeError) as error:
            return f"torchcodec does not load: {error}"
        return None
    done = subprocess.run([sys.executable, "-c", f"import {backend}"], capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"{backend} does not load: {done.stderr.strip().splitlines()[-1]}"


def skip_unless_usable(backend: str) -> None:
    if reason := load_error(backend):
        pytest.skip(reason)


@pytest.fixture(scope="module", params=sorted(DECODABLE))
def backend(request: pytest.FixtureRequest) -> str:
    skip_unless_usable(request.param)
    return request.param


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
    if reference.path.name in DECODABLE[backend]:
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


def test_every_backend_scales_alike(backend: str, reference_of: Callable[[str], Reference]) -> None:
    reference = reference_of("h264.mp4")
    with Video(reference.path) as exact, Video(reference.path, backend=backend) as other:
        expected = exact.frames_at_indices([3, 90], height=32, width=48).frames_THWC.astype(int)
        got = other.frames_at_indices([3, 90], height=32, width=48).frames_THWC
        assert got.shape == (2, 32, 48, 3)
        assert np.abs(got - expected).mean() < 3


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, reference_of: Callable[[str], Reference]) -> None:
    path = reference_of("h264.mp4").path
    assert Video(path).backend == "pyav"
    monkeypatch.setenv("VVT_VIDEO_BACKEND", "decord")
    assert Video(path, backend="pyav").backend == "pyav"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="the backend 'decord' needs"):
        Video(path)
    monkeypatch.setenv("VVT_VIDEO_BACKEND", "opencv")
    with pytest.raises(UsageError, match=r"VVT_VIDEO_BACKEND must be one of pyav, .*'opencv'"):
        Video(path)
    with pytest.raises(UsageError, match="backend must be one of"):
        Video(path, backend="Decord")


@pytest.mark.parametrize("name", ["torchcodec", "decord"])
def test_a_missing_package_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, reference_of: Callable[[str], Reference]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for module in ("torchcodec", "torchcodec.decoders"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it is an ImportError
    with pytest.raises(SetupError, match=rf"{name}==.*extra '{name}'"):
        Video(reference_of("h264.mp4").path, backend=name)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_decord_that_hangs_or_dies_is_replaced(how: int, reference_of: Callable[[str], Reference]) -> None:
    skip_unless_usable("decord")
    reference = reference_of("h264.mp4")
    with Video(reference.path, backend="decord") as video:
        child = video._decoder._child._process
        os.kill(child.pid, how)
        start = time.monotonic()
        with pytest.raises((DeadlineError, BackendError), match=r"not done within 0\.5 s|killed by signal 9"):
            video.frames_at_indices([50], deadline_seconds=0.5)
        assert time.monotonic() - start < 5.0
        assert child.poll() is not None
        assert_same(video.frames_at_indices([50, 7], deadline_seconds=30.0), [50, 7], reference)


def test_decord_ends_with_its_video(reference_of: Callable[[str], Reference]) -> None:
    skip_unless_usable("decord")
    video = Video(reference_of("h264.mp4").path, backend="decord")
    child = video._decoder._child._process
    video.close()
    assert child.poll() is not None
    video = Video(reference_of("h264.mp4").path, backend="decord")
    child = video._decoder._child._process
    del video
    gc.collect()
    assert child.poll() is not None


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


def test_damage_is_no_wrong_frame(backend: str, tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.mp4", num_frames=120, gop_frames=30, codec_options={"bf": "0"})
    data = bytearray(whole.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 600] = np.random.default_rng(0).integers(0, 256, 600, dtype=np.uint8).tobytes()
    path = tmp_path / "damaged.mp4"
    path.write_bytes(data)
    if backend == "torchcodec":
        pytest.skip("torchcodec does not tell patched-up frames from sound ones; the documentation says so")
    num_refused = 0
    try:
        video = Video(path, backend=backend)
    except BackendError:
        assert backend == "decord", "its threads read ahead and may meet the damage before the first frame is out"
        return
    with video:
        for index in range(0, 120, 3):
            try:
                (frame,) = video.frames_at_indices([index], deadline_seconds=10.0).frames_THWC
            except (BackendError, DeadlineError):
                num_refused += 1
            else:
                assert read_number(frame) == index
    most = 40 if backend == "decord" else 30  # how far ahead its threads are when they meet the damage is chance
    assert 0 < num_refused < most
