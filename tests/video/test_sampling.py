"""Sample times and indices, against the papers' figures and as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.video import fps_seconds, linspace_indices, not_before, uniform_seconds


@pytest.mark.parametrize(
    ("first", "last", "count", "expected"),
    [
        (0, 453, 8, (0, 64, 129, 194, 258, 323, 388, 453)),
        (101, 199, 8, (101, 115, 129, 143, 157, 171, 185, 199)),
        (101, 199, 12, (101, 109, 118, 127, 136, 145, 154, 163, 172, 181, 190, 199)),
        (101, 108, 8, tuple(range(101, 109))),
        (5, 5, 8, (5,)),
        (0, 3, 8, (0, 1, 2, 3)),
        (0, 100, 1, (0,)),
    ],
)
def test_linspace_indices(first: int, last: int, count: int, expected: tuple[int, ...]) -> None:
    assert linspace_indices(first, last, count) == expected


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(1, 512))
def test_linspace_indices_are_the_published_rule(first: int, length: int, count: int) -> None:
    indices = linspace_indices(first, first + length, count)
    assert indices == tuple(sorted({int(x) for x in np.linspace(first, first + length, count, dtype=int)}))
    assert all(type(index) is int for index in indices)
    assert first <= indices[0] and indices[-1] <= first + length


@pytest.mark.parametrize(("first", "last", "count"), [(0, 10, 0), (10, 9, 3)])
def test_linspace_indices_refuses(first: int, last: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"count={count}"):
        linspace_indices(first, last, count)


def test_uniform_seconds() -> None:
    assert uniform_seconds(2.0, 4.0, 5) == (2.0, 2.5, 3.0, 3.5, 4.0)
    assert uniform_seconds(2.0, 4.0, 1) == (2.0,)
    with pytest.raises(ValueError, match="end=1"):
        uniform_seconds(2.0, 1.0, 2)


@pytest.mark.parametrize(
    ("start", "end", "fps", "max_frames", "expected"),
    [
        (0.0, 4.0, 1.0, 16, (0.0, 1.0, 2.0, 3.0)),
        (1.0, 2.0, 2.0, 16, (1.0, 1.5)),
        (1.0, 1.0, 2.0, 16, (1.0,)),
        (1.0, 1.3, 10.0, 16, (1.0, 1.1, 1.2)),  # (1.3 - 1.0) * 10 is a little more than 3 in floating point
        (0.0, 0.07, 100.0, 16, (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06)),
        (0.0, 0.0701, 100.0, 16, (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07)),  # no float error: a frame more
        (0.0, 8.0, 1.0, 4, (0.0, 2.0, 4.0, 6.0)),
        (0.0, 3.5, 1.0, 4, (0.0, 1.0, 2.0, 3.0)),  # as many as there may be
        (0.0, 4.5, 1.0, 4, (0.0, 1.125, 2.25, 3.375)),  # one more
    ],
)
def test_fps_seconds(start: float, end: float, fps: float, max_frames: int, expected: tuple[float, ...]) -> None:
    assert fps_seconds(start, end, fps, max_frames) == pytest.approx(expected)


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0.01, 60), st.integers(1, 512))
def test_fps_seconds_stay_inside(start: float, length: float, fps: float, max_frames: int) -> None:
    end = start + length
    times = fps_seconds(start, end, fps, max_frames)
    assert 1 <= len(times) <= max_frames
    assert times[0] == start and all(start <= time <= end for time in times)
    assert list(times) == sorted(times)


@pytest.mark.parametrize(("end", "fps", "max_frames"), [(1.0, 0.0, 4), (1.0, 1.0, 0), (-1.0, 1.0, 4)])
def test_fps_seconds_refuses(end: float, fps: float, max_frames: int) -> None:
    with pytest.raises(ValueError, match=f"fps={fps}"):
        fps_seconds(0.0, end, fps, max_frames)


@pytest.mark.parametrize("fps", [5, 24, 30, 60])
def test_times_of_frames_are_not_before_them(fps: int) -> None:
    """Computed times of frame starts, such as a third of 2 s, name these frames despite float error."""
    times = uniform_seconds(0.0, 999 / fps, 1000)
    assert [int(time * fps) for time in not_before(times, 1000 / fps)] == list(range(1000))
    assert not_before((10.0,), 10.0) == (10.0,)


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(1, 512))
def test_linspace_indices_are_exact_in_number_and_ends(first: int, length: int, count: int) -> None:
    indices = linspace_indices(first, first + length, count)
    assert len(indices) == min(count, length + 1)
    assert list(indices) == sorted(set(indices))
    assert indices[0] == first and (indices[-1] == first + length or count == 1)


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.integers(2, 512))
def test_uniform_seconds_are_exact_in_number_and_ends(start: float, length: float, count: int) -> None:
    times = uniform_seconds(start, start + length, count)
    assert len(times) == count and list(times) == sorted(times)
    assert (times[0], times[-1]) == (start, start + length)


@pytest.mark.parametrize(("num_frames", "count"), [(14_400, 128), (100_000, 256), (100, 128)])
def test_candidates_of_retrieval(num_frames: int, count: int) -> None:
    candidates = linspace_indices(0, num_frames - 1, count)
    assert len(candidates) == min(count, num_frames)
    assert (candidates[0], candidates[-1]) == (0, num_frames - 1)
