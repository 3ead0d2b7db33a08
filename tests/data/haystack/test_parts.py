"""Cuts of real files, parts made of them, and rules on questions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.errors import VideoError
from verl_video_tools.data.haystack.checks import fault
from verl_video_tools.data.haystack.pipeline import shown_seconds
from verl_video_tools.data.haystack.scenes import find_cuts, join_scenes

pytest.importorskip("scenedetect", reason="the extra `haystack` is not installed")


def write_scenes(path: Path, seconds: list[float], fps: int = 10) -> Path:
    """Red, green and blue scenes of these lengths, each a little brighter every second."""
    colours = [(220, 30, 30), (30, 120, 30), (90, 90, 240)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        stream.codec_context.thread_count = 1
        for number, length in enumerate(seconds):
            for frame in range(round(length * fps)):
                picture_HWC = np.full((32, 32, 3), colours[number % len(colours)], np.uint8) + np.uint8(frame // fps)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture_HWC, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def test_cuts_are_found_where_they_are(tmp_path: Path) -> None:
    video = write_scenes(tmp_path / "scenes.mp4", [3.0, 2.0, 4.0])
    cuts, info = find_cuts(video, scan_fps=10.0, threshold=27.0)
    assert cuts == pytest.approx([3.0, 5.0])
    assert info.duration_seconds == 9.0
    coarse, _ = find_cuts(video, scan_fps=4.0, threshold=27.0)
    assert [0.0 <= found - cut <= 0.25 for found, cut in zip(coarse, cuts, strict=True)] == [True, True]


def test_a_video_without_cuts_and_a_flash(tmp_path: Path) -> None:
    assert find_cuts(write_scenes(tmp_path / "one.mp4", [3.0]), 4.0, 27.0)[0] == []
    flash = write_scenes(tmp_path / "flash.mp4", [4.0, 0.2, 4.0])
    assert len(find_cuts(flash, 10.0, 27.0)[0]) == 1


@pytest.mark.parametrize("name", ["gone.mp4", "a\0b.mp4"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(VideoError):
        find_cuts(tmp_path / name, 4.0, 27.0)


@pytest.mark.parametrize(
    ("cuts", "duration", "parts"),
    [
        ([], 7.0, [(0, 7)]),
        ([], 30.0, [(0, 30)]),
        ([12.0], 30.0, [(0, 12), (12, 30)]),
        ([4.0, 8.0, 11.0, 25.0], 30.0, [(0, 11), (11, 30)]),
        ([3.0, 6.0], 9.0, [(0, 9)]),
        ([10.0], 110.0, [(0, 10), (10, 60), (60, 110)]),
    ],
)
def test_short_scenes_are_joined_and_long_ones_divided(
    cuts: list[float], duration: float, parts: list[tuple[float, float]]
) -> None:
    assert join_scenes(cuts, duration, min_seconds=10.0, max_seconds=60.0) == parts


@given(st.lists(st.floats(0.1, 900.0), max_size=30).map(sorted), st.floats(901.0, 4000.0))
def test_parts_cover_the_video_and_have_their_lengths(cuts: list[float], duration: float) -> None:
    parts = join_scenes(cuts, duration, min_seconds=10.0, max_seconds=60.0)
    assert parts[0][0] == 0.0 and parts[-1][1] == duration
    assert all(end == start for (_, end), (start, _) in pairwise(parts))
    assert all(10.0 - 1e-9 <= end - start <= 60.0 + 1e-9 for start, end in parts)


def test_frames_of_a_part_are_its_own() -> None:
    assert shown_seconds((10.0, 14.0), fps=1.0, max_frames=32) == (10.5, 11.5, 12.5, 13.5)
    assert shown_seconds((10.0, 10.2), fps=1.0, max_frames=32) == pytest.approx((10.1,))
    assert len(shown_seconds((0.0, 600.0), fps=1.0, max_frames=32)) == 32


@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        ("What does the man in the green hat lift?", "a crate", None),
        ("How many birds sit on the roof?", "3", None),
        ("Is the door open?", "Yes.", "guessed"),
        ("What is seen?", "?", "guessed"),
        ("Who holds the red flag?", "the red flag", "gives its answer away"),
        ("Who holds the reddish flag?", "red", None),
        ("What falls at 1:30?", "a vase", "where to look"),
        ("What falls after 90 seconds?", "a vase", "where to look"),
        ("What does the second caption mention?", "a vase", "descriptions"),
        ("What falls?", "a vase " * 30, "long"),
    ],
)
def test_rules(question: str, answer: str, reason: str | None) -> None:
    found = fault(question, answer)
    assert (found is None) if reason is None else (found is not None and reason in found)
