"""Hidden frames are found without looking at every packet, and every packet is looked at where that would not do."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.videos.boxes import read_number as number_in_box
from tests.videos.boxes import with_box
from tests.videos.files import read_number, remux, sequential_numbers, write_video
from verl_video_tools.video import Video, mp4_boxes
from verl_video_tools.video.mp4_tables import has_edit_list, is_one_whole_stretch

EDITS = (b"moov", b"trak", b"edts")
FREE_BOX = struct.pack(">I4s", 8, b"free")


def with_edits(source: Path, target: Path, edits_seconds: list[tuple[float, float]]) -> Path:
    """Give an MP4 file (index last, one video track) an edit list of (start, length) stretches of its media."""
    ticks_per_second = number_in_box(source, b"mdhd", 12)
    entries = [
        struct.pack(">IiI", round(length * 1000), round(start * ticks_per_second), 1 << 16)
        for start, length in edits_seconds
    ]
    edits = struct.pack(">II", 0, len(entries)) + b"".join(entries)
    return with_box(source, target, EDITS, b"elst", edits)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_video(tmp_path / "whole.mp4", num_frames=240, gop_frames=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "edits_seconds",
    [
        [(0.2, 7.5)],
        [(1.5, 4.0)],
        [(0.07, 2.0), (4.07, 2.0)],
        [(0.07, 1.0), (1.4, 0.5), (3.07, 1.0), (5.2, 2.8)],
    ],
)
def test_frames_of_an_edited_file(edits_seconds: list[tuple[float, float]], whole: Path, tmp_path: Path) -> None:
    path = with_edits(whole, tmp_path / "edited.mp4", edits_seconds)
    assert is_one_whole_stretch(path) == (len(edits_seconds) == 1)
    numbers, _ = sequential_numbers(path)
    assert len(numbers) < 240
    with Video(path) as video:
        assert video.info.num_frames == len(numbers)
        order = np.random.default_rng(0).permutation(len(numbers)).tolist()
        batch = video.frames_at_indices(order)
        assert [read_number(frame) for frame in batch.frames_THWC] == [numbers[index] for index in order]


def test_number_of_edits(whole: Path, tmp_path: Path) -> None:
    assert is_one_whole_stretch(whole)
    assert is_one_whole_stretch(remux(whole, tmp_path / "cut.mp4", from_seconds=1.5))
    assert is_one_whole_stretch(with_edits(whole, tmp_path / "none.mp4", []))
    assert not is_one_whole_stretch(with_edits(whole, tmp_path / "two.mp4", [(0, 1), (2, 1)]))


def test_empty_edits_are_no_stretch(whole: Path, tmp_path: Path) -> None:
    edits = struct.pack(">IIIiIIiI", 0, 2, 1000, -1, 1 << 16, 8000, 0, 1 << 16)
    assert is_one_whole_stretch(with_box(whole, tmp_path / "late.mp4", EDITS, b"elst", edits))
    edits = struct.pack(">IIQqIQqI", 1 << 24, 2, 1000, -1, 1 << 16, 8000, 0, 1 << 16)
    assert is_one_whole_stretch(with_box(whole, tmp_path / "long_fields.mp4", EDITS, b"elst", edits))


def test_a_file_that_cannot_be_followed(whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    place = data.index(b"moov") - 4
    data[place : place + 4] = (3).to_bytes(4, "big")
    (tmp_path / "odd.mp4").write_bytes(data)
    assert not is_one_whole_stretch(tmp_path / "odd.mp4")
    edits = struct.pack(">IIIiI", 0, 1000, 1000, 0, 1 << 16)  # one, and 1,000 are announced
    assert not is_one_whole_stretch(with_box(whole, tmp_path / "many.mp4", EDITS, b"elst", edits))
    assert not is_one_whole_stretch(tmp_path / "gone.mp4")


def test_an_edit_list_of_any_size_is_not_read_into_memory(whole: Path, tmp_path: Path) -> None:
    edits = struct.pack(">II", 0, 5_000_000) + struct.pack(">IiI", 0, -1, 1 << 16) * 5_000_000
    path = with_box(whole, tmp_path / "many.mp4", EDITS, b"elst", edits)
    tracemalloc.start()
    try:
        assert not is_one_whole_stretch(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_first_index_of_a_file_counts(whole: Path, tmp_path: Path) -> None:
    """As for FFmpeg, which passes over any other."""
    data = with_edits(whole, tmp_path / "two.mp4", [(0, 1), (2, 1)]).read_bytes()
    second = data[data.index(b"moov") - 4 :]
    path = tmp_path / "twice.mp4"
    path.write_bytes(whole.read_bytes() + second)
    assert is_one_whole_stretch(path)
    numbers, _ = sequential_numbers(path)
    with Video(path) as video:
        assert video.info.num_frames == len(numbers) == 240


def test_boxes_without_end_are_not_walked_through(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mp4_boxes, "MAX_BOXES", 500)
    path = tmp_path / "free.mp4"
    for num_boxes, expected in ((400, True), (600, False)):
        path.write_bytes(FREE_BOX * num_boxes + whole.read_bytes())
        assert is_one_whole_stretch(path) == has_edit_list(path) == expected


def test_a_file_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "free.mp4").write_bytes(FREE_BOX * 3)
    assert not is_one_whole_stretch(tmp_path / "free.mp4")


def test_key_frames_only(tmp_path: Path) -> None:
    path = write_video(tmp_path / "intra.mp4", num_frames=30, gop_frames=1, b_frames=0)
    with Video(path) as video:
        assert video.info.num_frames == 30
        assert [read_number(frame) for frame in video.frames_at_indices([29, 7]).frames_THWC] == [29, 7]
