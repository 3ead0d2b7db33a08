"""Hidden frames are found without looking at every packet, and every packet is looked at where that would not do."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.videos.files import read_number, remux, sequential_numbers, write_video
from verl_video_tools.video import Video
from verl_video_tools.video.edit_list import max_edits


def with_edits(source: Path, target: Path, edits_seconds: list[tuple[float, float]]) -> Path:
    """Give an MP4 file (index last, one video track) an edit list of (start, length) stretches of its media."""
    data = bytearray(source.read_bytes())
    old = data.index(b"elst") - 4
    old_bytes = int.from_bytes(data[old : old + 4], "big")
    media_header = data.index(b"mdhd") + 4
    ticks_per_second = int.from_bytes(data[media_header + 12 : media_header + 16], "big")
    entries = [
        struct.pack(">IiI", round(length * 1000), round(start * ticks_per_second), 1 << 16)
        for start, length in edits_seconds
    ]
    new = struct.pack(">I4sII", 16 + 12 * len(entries), b"elst", 0, len(entries)) + b"".join(entries)
    grown = len(new) - old_bytes
    for name in (b"moov", b"trak", b"edts"):
        place = data.index(name) - 4
        data[place : place + 4] = (int.from_bytes(data[place : place + 4], "big") + grown).to_bytes(4, "big")
    data[old : old + old_bytes] = new
    target.write_bytes(data)
    return target


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


def test_key_frames_only(tmp_path: Path) -> None:
    path = write_video(tmp_path / "intra.mp4", num_frames=30, gop_frames=1, b_frames=0)
    with Video(path) as video:
        assert video.info.num_frames == 30
        assert [read_number(frame) for frame in video.frames_at_indices([29, 7]).frames_THWC] == [29, 7]
