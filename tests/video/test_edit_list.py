"""The tables of an MP4 file tell its frames, and its packets do where the tables do not tell all."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from tests.videos.boxes import read_number as number_in_box
from tests.videos.boxes import with_box
from tests.videos.compare import compare
from tests.videos.files import read_number, remux, write_video
from tests.videos.reference import Reference
from verl_video_tools.video import Video, reader
from verl_video_tools.video.source import NEVER, VideoSource

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
    reference = Reference(with_edits(whole, tmp_path / "edited.mp4", edits_seconds))
    assert len(reference.numbers) < 240
    assert reads_tables(reference.path) == (len(edits_seconds) == 1)
    with Video(reference.path) as video:
        assert compare(video, reference).wrong is None


def reads_tables(path: Path) -> bool:
    """Whether the index comes from the tables of the file, and not from a pass over its packets."""
    source = VideoSource(path)
    try:
        reader._index_of_tables(source, NEVER)
    except reader.IndexMismatch:
        return False
    finally:
        source.close()
    return True


def test_tables_that_tell_all(whole: Path, tmp_path: Path) -> None:
    empty_edit = struct.pack(">IIIiIIiI", 0, 2, 1000, -1, 1 << 16, 8000, 0, 1 << 16)
    long_fields = struct.pack(">IIQqIQqI", 1 << 24, 2, 1000, -1, 1 << 16, 8000, 0, 1 << 16)
    for path in (
        whole,
        remux(whole, tmp_path / "cut.mp4", from_seconds=1.5),
        with_edits(whole, tmp_path / "none.mp4", []),
        with_box(whole, tmp_path / "late.mp4", EDITS, b"elst", empty_edit),
        with_box(whole, tmp_path / "long_fields.mp4", EDITS, b"elst", long_fields),
    ):
        reference = Reference(path)
        assert reads_tables(path)
        with Video(path) as video:
            assert compare(video, reference).wrong is None


def test_a_file_that_cannot_be_followed(whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    place = data.index(b"moov") - 4
    data[place : place + 4] = (3).to_bytes(4, "big")
    (tmp_path / "odd.mp4").write_bytes(data)
    (tmp_path / "free.mp4").write_bytes(FREE_BOX * 3)
    for name in ("odd.mp4", "free.mp4", "gone.mp4"):
        assert reader._sample_table(tmp_path / name, 1) is None
    edits = struct.pack(">IIIiI", 0, 1000, 1000, 0, 1 << 16)  # one, and 1,000 are announced
    assert reader._sample_table(with_box(whole, tmp_path / "many.mp4", EDITS, b"elst", edits), 1) is None
    assert reader._sample_table(whole, 2) is None


def test_a_table_of_any_size_is_not_read_into_memory(whole: Path, tmp_path: Path) -> None:
    edits = struct.pack(">II", 0, 5_000_000) + struct.pack(">IiI", 0, -1, 1 << 16) * 5_000_000
    path = with_box(whole, tmp_path / "many.mp4", EDITS, b"elst", edits)
    tracemalloc.start()
    try:
        assert reader._sample_table(path, 1) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_first_index_of_a_file_counts(whole: Path, tmp_path: Path) -> None:
    """As for FFmpeg, which passes over any other."""
    data = with_edits(whole, tmp_path / "two.mp4", [(0, 1), (2, 1)]).read_bytes()
    second = data[data.index(b"moov") - 4 :]
    path = tmp_path / "twice.mp4"
    path.write_bytes(whole.read_bytes() + second)
    assert reads_tables(path)
    reference = Reference(path)
    with Video(path) as video:
        assert video.info.num_frames == len(reference.numbers) == 240
        assert compare(video, reference).wrong is None


def test_boxes_without_end_are_not_walked_through(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BOXES", 500)
    path = tmp_path / "free.mp4"
    for num_boxes, expected in ((400, True), (600, False)):
        path.write_bytes(FREE_BOX * num_boxes + whole.read_bytes())
        assert (reader._sample_table(path, 1) is not None) == expected


def test_key_frames_only(tmp_path: Path) -> None:
    path = write_video(tmp_path / "intra.mp4", num_frames=30, gop_frames=1, b_frames=0)
    with Video(path) as video:
        assert video.info.num_frames == 30
        assert [read_number(frame) for frame in video.frames_at_indices([29, 7]).frames_THWC] == [29, 7]
