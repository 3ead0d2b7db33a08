"""Random access gives the very frames and times of sequential decoding; `test_every_kind` has every kind of file."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.video.conftest import Reference
from tests.videos.files import draw_number, read_number, write_video
from verl_video_tools.video import Video

FULL_LENGTHS = {"h264.mp4": 100, "uneven.mp4": 60, "open_gop.ts": 60, "vp8.webm": 60, "hevc.mp4": 90}


def assert_same(batch, indices: list[int], reference: Reference) -> None:
    assert [read_number(frame) for frame in batch.frames_THWC] == [reference.numbers[index] for index in indices]
    for frame, index in zip(batch.frames_THWC, indices, strict=True):
        np.testing.assert_array_equal(frame, reference.pictures[index])
    assert batch.timestamps_seconds.tolist() == [reference.timestamps_seconds[index] for index in indices]
    assert batch.indices.tolist() == indices
    assert not batch.corrupt.any()


@pytest.mark.parametrize("name", sorted(FULL_LENGTHS))
def test_the_reference_itself_shows_every_written_frame(name: str, reference_of: Callable[[str], Reference]) -> None:
    assert reference_of(name).numbers == list(range(FULL_LENGTHS[name]))


def test_single_frames_in_random_order(reference: Reference) -> None:
    order = random.Random(0).sample(range(len(reference.numbers)), k=min(25, len(reference.numbers)))
    with Video(reference.path) as video:
        for index in order:
            assert_same(video.frames_at_indices([index]), [index], reference)


def test_sparse_requests_keep_order_and_repetitions(reference: Reference) -> None:
    rng = random.Random(1)
    with Video(reference.path) as video:
        for _ in range(8):
            indices = [rng.randrange(len(reference.numbers)) for _ in range(6)]
            assert_same(video.frames_at_indices([*indices, indices[0]]), [*indices, indices[0]], reference)


@pytest.mark.parametrize("name", ["h264.mp4", "uneven.mp4", "uneven.mkv", "open_gop.ts", "edit_list.mp4"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_time_follows_the_interval_rule(
    name: str, reference_of: Callable[[str], Reference], opened: Callable[[str], Video], data: st.DataObject
) -> None:
    reference, video = reference_of(name), opened(name)
    seconds = data.draw(
        st.lists(st.floats(0, video.info.duration_seconds, allow_nan=False), min_size=1, max_size=5), label="seconds"
    )
    expected = [reference.index_at(time) for time in seconds]
    batch = video.frames_at(seconds)
    assert [read_number(frame) for frame in batch.frames_THWC] == [reference.numbers[index] for index in expected]
    assert batch.indices.tolist() == expected


@pytest.fixture(scope="module")
def opened(reference_of: Callable[[str], Reference]) -> Callable[[str], Video]:
    videos: dict[str, Video] = {}

    def get(name: str) -> Video:
        if name not in videos:
            videos[name] = Video(reference_of(name).path)
        return videos[name]

    return get


@pytest.mark.parametrize(
    ("name", "duration_seconds", "num_frames", "average_fps"),
    [
        ("h264.mp4", Fraction(100, 30), 100, 30.0),
        ("starts_late.mkv", 2.0, 60, 30.0),
        ("starts_late.mp4", 2.0, 60, 30.0),
        ("starts_late.ts", 2.0, 60, 30.0),
        ("with_audio.mp4", 2.0, 60, 30.0),
        ("ntsc.mp4", Fraction(60 * 1001, 30000), 60, 30000 / 1001),
        ("edit_list.mp4", 1.5, 45, 30.0),
        ("fragmented.mp4", 2.0, 60, 30.0),
        ("half_fragmented.mp4", 2.0, 60, 30.0),
        ("no_cues.mkv", 2.0, 60, 30.0),
        ("mpeg4.avi", 2.0, 60, 30.0),
        ("one_frame.mp4", Fraction(1, 30), 1, 30.0),
    ],
)
def test_info(
    name: str,
    duration_seconds: float,
    num_frames: int,
    average_fps: float,
    reference_of: Callable[[str], Reference],
) -> None:
    info = Video(reference_of(name).path).info
    assert info.duration_seconds == pytest.approx(float(duration_seconds), abs=1e-3)
    assert info.num_frames == num_frames
    assert info.average_fps == average_fps
    assert (info.width, info.height) == (96, 64)


def test_average_rate_of_uneven_frames_is_measured(reference_of: Callable[[str], Reference]) -> None:
    for name in ("uneven.mp4", "uneven.mkv"):
        info = Video(reference_of(name).path).info
        assert info.average_fps == info.num_frames / info.duration_seconds
        assert info.average_fps == pytest.approx(60 / 8.0, rel=0.03)


@pytest.mark.parametrize(
    ("name", "quarter_turns"), [("rotated_90.mp4", 1), ("rotated_180.mp4", 2), ("rotated_270.mp4", 3)]
)
def test_rotation_is_applied(name: str, quarter_turns: int, reference_of: Callable[[str], Reference]) -> None:
    expected = np.rot90(draw_number(7), quarter_turns)
    with Video(reference_of(name).path) as video:
        assert (video.info.height, video.info.width) == expected.shape[:2]
        frame = video.frames_at_indices([7]).frames_THWC[0]
        assert np.abs(frame.astype(int) - expected).mean() < 25  # lossy; a wrong turn differs by about 100
        small = video.frames_at_indices([7], height=expected.shape[0] // 2, width=expected.shape[1] // 2)
        assert small.frames_THWC.shape[1:3] == (expected.shape[0] // 2, expected.shape[1] // 2)
        assert np.abs(small.frames_THWC[0].astype(int) - expected[::2, ::2]).mean() < 40


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("quarter_turns", [0, 1, 2, 3])
def test_mirroring_is_applied(quarter_turns: int, suffix: str, tmp_path: Path) -> None:
    path = write_video(tmp_path / f"m.{suffix}", num_frames=9, rotation_degrees=90 * quarter_turns, mirrored=True)
    expected = np.fliplr(np.rot90(draw_number(7), quarter_turns))
    with Video(path) as video:
        frame = video.frames_at_indices([7]).frames_THWC[0]
    assert frame.shape == expected.shape
    assert np.abs(frame.astype(int) - expected).mean() < 25  # lossy; without mirroring it differs by about 100


def test_frames_of_h264_in_avi_come_in_order_at_even_times(tmp_path: Path) -> None:
    """AVI holds no presentation times, and FFmpeg's guesses for B-frames jump back and forth."""
    with Video(write_video(tmp_path / "h264.avi", num_frames=50)) as video:
        batch = video.frames_at_indices([49, 0, 17, 18])
        assert [read_number(frame) for frame in batch.frames_THWC] == [49, 0, 17, 18]
        assert batch.timestamps_seconds.tolist() == [49 / 30, 0.0, 17 / 30, 18 / 30]
        assert [read_number(frame) for frame in video.frames_at([0.5, 1.0]).frames_THWC] == [15, 30]


@pytest.mark.parametrize("second_start_seconds", [5.0, 1.0])  # the same times again, and earlier ones
def test_a_clock_that_jumps_back_does_not_reorder_frames(second_start_seconds: float, tmp_path: Path) -> None:
    first = write_video(tmp_path / "first.ts", num_frames=40, start_seconds=5.0)
    second = write_video(tmp_path / "second.ts", num_frames=40, start_seconds=second_start_seconds)
    (tmp_path / "joined.ts").write_bytes(first.read_bytes() + second.read_bytes())
    with Video(tmp_path / "joined.ts") as video:
        batch = video.frames_at_indices(range(video.info.num_frames))
        numbers = [read_number(frame) for frame in batch.frames_THWC]
        assert numbers == [*range(40), *range(40)]
        assert np.all(np.diff(batch.timestamps_seconds) > 0)


def test_a_seek_that_lands_too_late_is_repeated_further_back(reference_of: Callable[[str], Reference]) -> None:
    """In MPEG-TS most seeks land behind the key frame; a file where none did would not test the reader."""
    reference = reference_of("starts_late.ts")
    with Video(reference.path) as video:
        source = video._source
        assert source is not None
        aims, seek = [], source._seek
        source._seek = lambda tick: (aims.append(tick), seek(tick))[1]
        assert_same(video.frames_at_indices([40]), [40], reference)
    assert len(aims) > 1
