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
from verl_video_tools.video.edit_list import has_edit_list, max_edits


def with_edits(source: Path, target: Path, edits_seconds: list[tuple[float, float]]) -> Path:
    """Give an MP4 file (index last, one video track) an edit list of (start, length) stretches of its media."""
    ticks_per_second = number_in_box(source, b"mdhd", 12)
    entries = [
        struct.pack(">IiI", round(length * 1000), round(start * ticks_per_second), 1 << 16)
        for start, length in edits_seconds
    ]
    edits = struct.pack(">II", 0, len(entries)) + b"".join(entries)
    return with_box(source, target, (b"moov", b"trak", b"edts"), b"elst", edits)


def box(kind: bytes, *contents: bytes, num_bytes: int | None = None) -> bytes:
    """A box; `num_bytes` announces so many bytes of contents."""
    inner = b"".join(contents)
    return struct.pack(">I4s", 8 + (len(inner) if num_bytes is None else num_bytes), kind) + inner


def announce_edits(path: Path, num_edits: int, num_bytes: int) -> Path:
    """A sparse file with an edit list of so many bytes, nearly all of them a hole."""
    edits = struct.pack(">II", 0, num_edits)
    header = box(b"elst", edits, num_bytes=num_bytes)
    for kind in (b"edts", b"trak", b"moov"):
        num_bytes += 8
        header = box(kind, header, num_bytes=num_bytes)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(num_bytes + 8)
    return path


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
    assert max_edits(path) == len(edits_seconds)
    numbers, _ = sequential_numbers(path)
    assert len(numbers) < 240
    with Video(path) as video:
        assert video.info.num_frames == len(numbers)
        order = np.random.default_rng(0).permutation(len(numbers)).tolist()
        batch = video.frames_at_indices(order)
        assert [read_number(frame) for frame in batch.frames_THWC] == [numbers[index] for index in order]


def test_number_of_edits(whole: Path, tmp_path: Path) -> None:
    assert max_edits(whole) == 1
    assert max_edits(remux(whole, tmp_path / "cut.mp4", from_seconds=1.5)) == 1
    assert max_edits(with_edits(whole, tmp_path / "two.mp4", [(0, 1), (2, 1)])) == 2


def test_a_file_that_cannot_be_followed(whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    place = data.index(b"moov") - 4
    data[place : place + 4] = (3).to_bytes(4, "big")
    (tmp_path / "odd.mp4").write_bytes(data)
    assert max_edits(tmp_path / "odd.mp4") is None
    whole_edits = with_edits(whole, tmp_path / "many.mp4", [(0, 1)]).read_bytes()
    place = whole_edits.index(b"elst") + 8
    (tmp_path / "many.mp4").write_bytes(whole_edits[:place] + (1000).to_bytes(4, "big") + whole_edits[place + 4 :])
    assert max_edits(tmp_path / "many.mp4") is None
    assert max_edits(tmp_path / "gone.mp4") is None


@pytest.mark.parametrize(("num_edits", "expected"), [(0, 1), (40_000, 40_000), (5_000_000, None), (6_000_000, None)])
def test_an_edit_list_of_any_size_is_not_read_into_memory(num_edits: int, expected: int | None, tmp_path: Path) -> None:
    path = announce_edits(tmp_path / "hole.mp4", num_edits, num_bytes=64 << 20)
    tracemalloc.start()
    try:
        assert max_edits(path) == expected
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_edit_lists_of_many_tracks_are_bounded_together(tmp_path: Path) -> None:
    edits = struct.pack(">II", 0, 40_000) + bytes(12 * 40_000)
    track = box(b"trak", box(b"edts", box(b"elst", edits)))
    (tmp_path / "tracks.mp4").write_bytes(box(b"moov", *(track,) * 2))
    assert max_edits(tmp_path / "tracks.mp4") == 40_000
    (tmp_path / "tracks.mp4").write_bytes(box(b"moov", *(track,) * 3))
    assert max_edits(tmp_path / "tracks.mp4") is None


def test_the_first_index_of_a_file_counts(whole: Path, tmp_path: Path) -> None:
    """As for FFmpeg, which passes over any other."""
    data = with_edits(whole, tmp_path / "two.mp4", [(0, 1), (2, 1)]).read_bytes()
    second = data[data.index(b"moov") - 4 :]
    path = tmp_path / "twice.mp4"
    path.write_bytes(whole.read_bytes() + second)
    assert max_edits(path) == 1
    numbers, _ = sequential_numbers(path)
    with Video(path) as video:
        assert video.info.num_frames == len(numbers) == 240


def test_boxes_without_end_are_not_walked_through(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mp4_boxes, "MAX_BOXES", 500)
    path = tmp_path / "free.mp4"
    for num_boxes, expected in ((400, 1), (600, None)):
        path.write_bytes(box(b"free") * num_boxes + whole.read_bytes())
        assert max_edits(path) == expected
        assert has_edit_list(path) == (expected == 1)


def test_a_file_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "free.mp4").write_bytes(box(b"free") * 3)
    assert max_edits(tmp_path / "free.mp4") is None


def test_key_frames_only(tmp_path: Path) -> None:
    path = write_video(tmp_path / "intra.mp4", num_frames=30, gop_frames=1, b_frames=0)
    with Video(path) as video:
        assert video.info.num_frames == 30
        assert [read_number(frame) for frame in video.frames_at_indices([29, 7]).frames_THWC] == [29, 7]
