"""Frames through the cache: the same as decoded ones, decoded once, within the cache's bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import DeadlineError, FrameRangeError, UsageError
from verl_video_tools.core.types import FrameBatch, FrameRequest
from verl_video_tools.video import Video, decode_frames, decoding, open_video
from verl_video_tools.video.batch import DecodedFrame, FrameView
from verl_video_tools.video.frame_cache import DEFAULT_BYTES, ENTRY_BYTES, FrameCache, capacity_bytes
from verl_video_tools.video.source import Deadline

FRAME_BYTES = 96 * 64 * 3 + ENTRY_BYTES


def by_index(*indices: int, width: int = 96, height: int = 64) -> FrameRequest:
    return FrameRequest(width, height, indices=indices)


def by_time(*seconds: float) -> FrameRequest:
    return FrameRequest(96, 64, seconds=seconds)


def numbers(batch: FrameBatch) -> list[int]:
    return [read_number(frame) for frame in batch.frames_THWC]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames in groups of 30."""
    return write_video(tmp_path_factory.mktemp("video") / "plain.mp4", num_frames=300, gop_frames=30)


@pytest.fixture(scope="module")
def opened(path: Path) -> Iterator[Video]:
    with Video(path) as video:
        yield video


@pytest.fixture
def decoded(opened: Video, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Indices that `opened` is asked to decode, in order."""
    indices: list[int] = []
    decode = opened.decode

    def note_and_decode(views: Sequence[FrameView], *arguments: Any) -> dict[FrameView, DecodedFrame]:
        indices.extend(sorted({view.frame_index for view in views}))
        return decode(views, *arguments)

    monkeypatch.setattr(opened, "decode", note_and_decode)
    return indices


@pytest.fixture
def cache() -> FrameCache:
    return FrameCache(64 << 20)


# ------------------------------------------------------------------------------------------------------- what is served


REQUESTS = st.builds(
    lambda indices, size: FrameRequest(*size, indices=tuple(indices)),
    st.lists(st.integers(0, 299), max_size=6),
    st.sampled_from([(96, 64), (48, 32)]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(REQUESTS, st.lists(REQUESTS, max_size=2)), min_size=1, max_size=6),
    capacity=st.sampled_from([0, FRAME_BYTES - 1, 3 * FRAME_BYTES, 10 * FRAME_BYTES, 64 << 20]),
)
def test_frames_are_those_of_the_video_and_bytes_are_bounded(
    opened: Video, steps: list[tuple[FrameRequest, list[FrameRequest]]], capacity: int
) -> None:
    """Also while frames are dropped and come again, within a request and between requests."""
    cache = FrameCache(capacity)
    for request, prefetch in steps:
        batch = cache.decode(opened, request, prefetch=prefetch)
        assert batch.frames_THWC.shape == (len(request), request.height, request.width, 3)
        assert batch.indices.tolist() == list(request.indices or ())
        expected = opened.frames(request)
        np.testing.assert_array_equal(batch.frames_THWC, expected.frames_THWC)
        assert batch.records() == expected.records()
        assert cache.stats().stored_bytes <= capacity
    if capacity == 64 << 20:  # nothing was dropped
        again = [cache.decode(opened, request) for request, _ in steps]
        assert [batch.num_cached for batch in again] == [len(request) for request, _ in steps]


def test_each_frame_is_decoded_once(opened: Video, decoded: list[int], cache: FrameCache) -> None:
    requests = [by_index(250, 3, 3, 31), by_time(0.0, 10.0, 1.0), by_index(3, 250)]
    assert [numbers(cache.decode(opened, request)) for request in requests] == [[250, 3, 3, 31], [0, 299, 30], [3, 250]]
    assert decoded == [3, 31, 250, 0, 30, 299]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.stored_bytes) == (2, 7, 6 * FRAME_BYTES)


def test_only_what_is_missing_is_decoded(opened: Video, decoded: list[int], cache: FrameCache) -> None:
    cache.decode(opened, by_index(5, 100))
    decoded.clear()
    batch = cache.decode(opened, by_index(4, 5, 100, 101))
    assert numbers(batch) == [4, 5, 100, 101] and batch.num_cached == 2
    assert decoded == [4, 101]


def test_the_frames_used_last_stay(opened: Video) -> None:
    cache = FrameCache(3 * FRAME_BYTES)
    for index in (1, 2, 3, 1, 4):
        cache.decode(opened, by_index(index))
    assert [cache.decode(opened, by_index(index)).num_cached for index in (1, 3, 4, 2)] == [1, 1, 1, 0]


def test_a_caller_that_changes_its_pixels_changes_no_others(opened: Video, cache: FrameCache) -> None:
    for _ in range(3):
        batch = cache.decode(opened, by_index(30))
        assert numbers(batch) == [30]
        batch.frames_THWC[:] = 0


def test_siblings_find_what_was_decoded_along(opened: Video, decoded: list[int], cache: FrameCache) -> None:
    own, sibling = by_index(5, 100), by_index(7, 100, 200, width=48, height=32)
    expected = opened.frames(sibling)
    decoded.clear()
    assert numbers(cache.decode(opened, own, prefetch=[own, sibling])) == [5, 100]
    batch = cache.decode(opened, sibling, prefetch=[own, sibling])
    assert decoded == [5, 7, 100, 200]
    np.testing.assert_array_equal(batch.frames_THWC, expected.frames_THWC)
    stats = cache.stats()
    assert (stats.hits, stats.misses) == (3, 2), "frames decoded for others count once they are asked for"


def test_siblings_without_a_cache_cost_nothing(opened: Video, decoded: list[int]) -> None:
    cache = FrameCache(0)
    for _ in range(2):
        batch = cache.decode(opened, by_index(5), prefetch=[by_index(7)])
        assert numbers(batch) == [5] and batch.num_cached == 0
    assert decoded == [5, 5]


def test_a_frame_that_several_times_mean_comes_once_if_asked(opened: Video, cache: FrameCache) -> None:
    request = FrameRequest(96, 64, seconds=(1.0, 0.0, 0.01, 1.001, 2.0), unique=True)
    for _ in range(2):
        batch = cache.decode(opened, request)
        assert numbers(batch) == batch.indices.tolist() == [30, 0, 60]


def test_a_file_written_anew_is_another_one(tmp_path: Path, cache: FrameCache) -> None:
    path = tmp_path / "video.mp4"
    for num_frames in (40, 30):
        write_video(path, num_frames=num_frames)
        with Video(path) as video:
            assert cache.decode(video, by_index(7)).num_cached == 0


def test_backends_share_no_frame(
    opened: Video, decoded: list[int], cache: FrameCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pixels differ in the last bits."""
    cache.decode(opened, by_index(5))
    monkeypatch.setattr(opened, "backend", "another")
    assert cache.decode(opened, by_index(5)).num_cached == 0
    assert decoded == [5, 5]


def test_damage_is_remembered_with_the_frame(path: Path, tmp_path: Path, cache: FrameCache) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 45 // 100 : len(data) * 65 // 100] = bytes(len(data) * 65 // 100 - len(data) * 45 // 100)
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(data)
    with Video(damaged) as video:
        first, again = (cache.decode(video, by_index(*range(0, 300, 7))) for _ in range(2))
    assert first.corrupt.any() and not first.corrupt.all() and again.num_cached == len(again)
    assert again.corrupt.tolist() == first.corrupt.tolist()
    assert again.indices.tolist() == first.indices.tolist() == numbers(again)


def test_errors_are_those_of_the_video(opened: Video, cache: FrameCache) -> None:
    with pytest.raises(FrameRangeError, match=r"10\.0"):
        cache.decode(opened, by_time(10.5))
    with pytest.raises(FrameRangeError, match="300"):
        cache.decode(opened, by_index(300))
    with pytest.raises(DeadlineError):
        cache.decode(opened, by_index(5), Deadline(0.0, "decode"))
    assert numbers(cache.decode(opened, by_index(5))) == [5], "an error leaves the cache usable"


# ---------------------------------------------------------------------------------------------------- a group at a time


@pytest.mark.parametrize(
    "spans", [[range(0, 300, 10)] * 8, [range(first, first + 60, 5) for first in range(0, 160, 20)]]
)
async def test_a_group_decodes_each_frame_once(path: Path, spans: list[range], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts that ask at the same time for the same span, and for spans that overlap."""
    cache = FrameCache(64 << 20)
    monkeypatch.setattr(decoding, "_cache", lambda: cache)

    async def roll_out(indices: range) -> list[int]:
        batch = await decode_frames(await open_video(path), by_index(*indices), 60.0)
        return numbers(batch)

    found = await asyncio.gather(*map(roll_out, spans))
    assert found == [list(span) for span in spans]
    different = {index for span in spans for index in span}
    assert (cache.stats().misses, cache.stats().hits) == (len(different), sum(map(len, spans)) - len(different))


# ------------------------------------------------------------------------------------------------------------- settings


def test_the_capacity_that_the_environment_sets() -> None:
    variable = "VVT_FRAME_CACHE_BYTES"
    assert capacity_bytes({}) == capacity_bytes({variable: ""}) == DEFAULT_BYTES
    assert capacity_bytes({variable: "0"}) == 0
    for value in ("4 GiB", "-1"):
        with pytest.raises(UsageError, match=rf"{variable} must be a number of bytes.*'{value}'"):
            capacity_bytes({variable: value})
