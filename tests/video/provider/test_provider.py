"""Frames through the caches: the same as decoded ones, decoded once per node, whatever happens to others."""

from __future__ import annotations

import os
import threading
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.video.provider.providing import FRAME_BYTES, SPAWN, by_index, by_time, numbers, provider_of, within
from tests.videos.files import write_video
from verl_video_tools.core.errors import DeadlineError, FrameRangeError, UsageError
from verl_video_tools.core.types import FrameBatch, FrameRequest
from verl_video_tools.video import Video
from verl_video_tools.video import provider as provider_module
from verl_video_tools.video.file_locks import StripedLocks, locked
from verl_video_tools.video.frame_store import FrameStore
from verl_video_tools.video.provider import FrameProvider, open_provider
from verl_video_tools.video.settings import VideoSettings

# ------------------------------------------------------------------------------------------------------- what is served


def test_cached_frames_equal_decoded_ones(video: Video, decoded: list[int], tmp_path: Path) -> None:
    provider = provider_of(tmp_path)
    requests = [by_index(250, 3, 3, 31), by_time(0.0, 10.0, 1.0), by_index(3, 40, width=48, height=32)]
    expected = video.decode_many(requests)
    decoded.clear()
    for num_cached in (0, 4):
        batches = provider.provide(video, requests, within(60))
        for batch, wanted in zip(batches, expected, strict=True):
            np.testing.assert_array_equal(batch.frames_THWC, wanted.frames_THWC)
            assert batch.timestamps_seconds.tolist() == wanted.timestamps_seconds.tolist()
            assert batch.indices.tolist() == wanted.indices.tolist()
        assert batches[0].num_cached == num_cached
    assert sorted(decoded) == [0, 3, 30, 31, 40, 250, 299]  # each once, though one is asked in two sizes
    stats = provider.stats()
    assert (stats.hits, stats.misses) == (9, 9)
    assert stats.stored_bytes == 6 * FRAME_BYTES + 2 * 8192  # two are small


def test_a_frame_that_several_times_mean_comes_once_if_asked(video: Video, tmp_path: Path) -> None:
    request = FrameRequest(96, 64, seconds=(1.0, 0.0, 0.01, 1.001, 2.0), unique=True)
    for provider in (FrameProvider(()), provider_of(tmp_path), provider_of(tmp_path)):
        (batch,) = provider.provide(video, [request], within(60))
        assert numbers(batch) == batch.indices.tolist() == [30, 0, 60]


def test_only_what_is_missing_is_decoded(video: Video, decoded: list[int], tmp_path: Path) -> None:
    provider = provider_of(tmp_path)
    provider.provide(video, [by_index(5, 100)])
    decoded.clear()
    (batch,) = provider.provide(video, [by_index(4, 5, 100, 101)])
    assert numbers(batch) == [4, 5, 100, 101] and batch.num_cached == 2
    assert decoded == [4, 101]


def test_siblings_find_what_was_decoded_along(video: Video, decoded: list[int], tmp_path: Path) -> None:
    """Only in groups of pictures that had to be decoded anyway: those of frames 0 to 29 and 90 to 119."""
    provider = provider_of(tmp_path)
    own, sibling = by_index(5, 100), by_index(7, 110, 200, width=48, height=32)
    expected = video.decode_many([own, sibling])
    decoded.clear()
    (batch,) = provider.provide(video, [own], prefetch=[own, sibling])
    np.testing.assert_array_equal(batch.frames_THWC, expected[0].frames_THWC)
    assert decoded == [5, 7, 100, 110]
    (batch,) = provider.provide(video, [sibling], prefetch=[own, sibling])
    np.testing.assert_array_equal(batch.frames_THWC, expected[1].frames_THWC)
    assert decoded == [5, 7, 100, 110, 200] and batch.num_cached == 2
    stats = provider.stats()
    assert (stats.hits, stats.misses) == (2, 3), "frames decoded for others count once they are asked for"


def test_siblings_without_a_cache_cost_nothing(video: Video, decoded: list[int]) -> None:
    (batch,) = FrameProvider(()).provide(video, [by_index(5)], prefetch=[by_index(7)])
    assert numbers(batch) == [5] and decoded == [5]


def test_a_file_written_anew_is_another_one(tmp_path: Path) -> None:
    provider, path = provider_of(tmp_path / "cache"), tmp_path / "video.mp4"
    for num_frames in (40, 30):
        write_video(path, num_frames=num_frames)
        with Video(path) as video:
            (batch,) = provider.provide(video, [by_index(7)])
        assert batch.num_cached == 0


def test_damage_is_remembered_with_the_frame(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 45 // 100 : len(data) * 65 // 100] = bytes(len(data) * 65 // 100 - len(data) * 45 // 100)
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(data)
    provider = provider_of(tmp_path / "cache")
    with Video(damaged) as video:
        first, again = (provider.provide(video, [by_index(*range(0, 300, 7))])[0] for _ in range(2))
    assert first.corrupt.any() and not first.corrupt.all() and again.num_cached == len(again)
    assert again.corrupt.tolist() == first.corrupt.tolist()
    assert again.indices.tolist() == first.indices.tolist() == numbers(again)


@pytest.mark.slow
def test_each_kind_of_file(reference: Any, tmp_path: Path) -> None:
    """Decoding group by group, partly from the cache, shows what decoding in sequence shows."""
    provider = provider_of(tmp_path)
    random = np.random.default_rng(0)
    with Video(reference.path) as video:
        for _ in range(4):
            indices = random.integers(0, video.info.num_frames, 6).tolist()
            (batch,) = provider.provide(video, [FrameRequest(video.info.width, video.info.height, indices=indices)])
            assert numbers(batch) == [reference.numbers[index] for index in indices]
            assert batch.timestamps_seconds.tolist() == [reference.timestamps_seconds[index] for index in indices]


def test_a_cache_too_small_for_the_request(video: Video, tmp_path: Path) -> None:
    provider = provider_of(tmp_path, capacity_bytes=3 * FRAME_BYTES)
    for _ in range(2):
        (batch,) = provider.provide(video, [by_index(*range(0, 300, 10))])
        assert numbers(batch) == list(range(0, 300, 10))
    assert 0 < provider.stats().stored_bytes <= 3 * FRAME_BYTES


def test_without_a_cache_everything_is_decoded(video: Video, decoded: list[int]) -> None:
    provider = FrameProvider([])
    for _ in range(2):
        (batch,) = provider.provide(video, [by_index(9)])
        assert numbers(batch) == [9] and batch.num_cached == 0
    assert decoded == [9, 9]
    assert (provider.stats().hits, provider.stats().misses, provider.stats().capacity_bytes) == (0, 2, 0)


def test_errors_are_those_of_the_video(video: Video, tmp_path: Path) -> None:
    provider = provider_of(tmp_path)
    with pytest.raises(FrameRangeError, match=r"10\.0"):
        provider.provide(video, [by_time(10.5)])
    with pytest.raises(FrameRangeError, match="300"):
        provider.provide(video, [by_index(300)])
    with pytest.raises(DeadlineError):
        provider.provide(video, [by_index(5)], within(0.0))
    assert provider.provide(video, [FrameRequest(96, 64, seconds=())])[0].frames_THWC.shape == (0, 64, 96, 3)


# ------------------------------------------------------------------------------------------------------------ time grid


def test_time_grid_lets_requests_meet(video: Video, decoded: list[int], tmp_path: Path) -> None:
    provider = provider_of(tmp_path, time_grid_seconds=0.5)
    for seconds in (0.98, 1.0, 1.2):
        (batch,) = provider.provide(video, [by_time(seconds)])
        assert batch.timestamps_seconds.tolist() == [1.0] and numbers(batch) == [30]
    assert decoded == [30]
    # The end stays the end, an index is meant as it is, and outside is outside.
    assert provider.provide(video, [by_time(9.9, 10.0)])[0].indices.tolist() == [299, 299]
    assert provider.provide(video, [by_index(31)])[0].indices.tolist() == [31]
    for outside in (-0.1, 10.1, float("nan")):
        with pytest.raises(FrameRangeError):
            provider.provide(video, [by_time(outside)])


def test_no_time_grid_by_default(video: Video, tmp_path: Path) -> None:
    provider = provider_of(tmp_path)
    assert provider.provide(video, [by_time(0.98, 1.0)])[0].indices.tolist() == [29, 30]


# ------------------------------------------------------------------------------------------------------------ disk tier


def test_a_process_that_holds_the_ledger_does_not_hold_up_frames(video: Video, tmp_path: Path) -> None:
    """As one that drops frames, or hangs on its disk, does; what is decoded meanwhile is not kept."""
    provider = provider_of(tmp_path)
    provider.provide(video, [by_index(5)])
    done: list[FrameBatch] = []
    reader = threading.Thread(
        target=lambda: done.extend(provider.provide(video, [by_index(*range(60))], within(60))), daemon=True
    )
    with locked(tmp_path / "ledger", ()):
        reader.start()
        reader.join(20)
        assert [numbers(batch) for batch in done] == [[*range(60)]]
        assert done[0].num_cached == 1
    provider.provide(video, [by_index(6)])
    assert provider.stats().stored_bytes == 2 * FRAME_BYTES


def settings(**environment: str) -> VideoSettings:
    return VideoSettings.from_environment(environment)


def test_disk_tier_outlives_the_memory(video: Video, decoded: list[int], tmp_path: Path) -> None:
    """Each pass has a new cache in memory, as after a restart; frames found on disk go into it."""
    for turn in range(2):
        memory = FrameStore(tmp_path / f"memory {turn}", 64 << 20)
        disk = FrameStore(tmp_path / "disk", 64 << 20)
        provider = FrameProvider([memory, disk], StripedLocks(tmp_path / "locks"))
        (batch,) = provider.provide(video, [by_index(10, 200)])
        assert numbers(batch) == [10, 200] and batch.num_cached == 2 * turn
        assert memory.stored_bytes == disk.stored_bytes == 2 * FRAME_BYTES
    assert decoded == [10, 200]


def _provide_with_settings(environment: dict[str, str], path: Path, indices: tuple[int, ...], pipe: Connection) -> None:
    provider = open_provider(VideoSettings.from_environment(environment))
    with Video(path) as video:
        (batch,) = provider.provide(video, [by_index(*indices)])
    pipe.send((numbers(batch), batch.num_cached))


@pytest.mark.slow
def test_disk_tier_serves_a_new_process(path: Path, tmp_path: Path) -> None:
    environment = {"VVT_FRAME_CACHE_BYTES": "0", "VVT_FRAME_CACHE_DISK": str(tmp_path / "disk")}
    for num_cached in (0, 2):
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_provide_with_settings, args=(environment, path, (7, 70), theirs))
        process.start()
        assert ours.poll(60) and ours.recv() == ([7, 70], num_cached)
        process.join(60)


@pytest.mark.slow
def test_processes_of_a_node_share_by_name(path: Path) -> None:
    name = f"test-{uuid.uuid4().hex}"
    for theirs_name, num_cached in ((name, 2), (f"{name}-other", 0)):
        environment = {"VVT_FRAME_CACHE_BYTES": str(64 << 20), "VVT_FRAME_CACHE": theirs_name}
        with Video(path) as video:
            open_provider(settings(**(environment | {"VVT_FRAME_CACHE": name}))).provide(video, [by_index(7, 70)])
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_provide_with_settings, args=(environment, path, (7, 70), theirs))
        process.start()
        assert ours.poll(60) and ours.recv() == ([7, 70], num_cached)
        process.join(60)


def test_a_cache_that_cannot_be_had_is_done_without(
    video: Video, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").write_text("")
    provider = open_provider(settings(VVT_FRAME_CACHE_BYTES="0", VVT_FRAME_CACHE_DISK=str(tmp_path / "a file")))
    assert numbers(provider.provide(video, [by_index(5)])[0]) == [5]
    assert "a file" in caplog.text


# ------------------------------------------------------------------------------------------------------------- settings


def test_settings() -> None:
    defaults = settings()
    assert defaults.cache_bytes is None and defaults.disk_folder is None and defaults.time_grid_seconds == 0
    given = settings(VVT_DECODE_THREADS="3", VVT_FRAME_CACHE_BYTES="0", VVT_TIME_GRID_SECONDS=".5", VVT_FRAME_CACHE="")
    assert (given.decode_threads, given.cache_bytes, given.time_grid_seconds) == (3, 0, 0.5)
    assert given.cache_name == defaults.cache_name


def test_threads_are_as_many_as_the_cpus_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with more of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 7, 11})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert settings().decode_threads == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VVT_DECODE_THREADS", "0"),
        ("VVT_FRAME_CACHE", "../elsewhere"),
        ("VVT_FRAME_CACHE_BYTES", "4 GiB"),
        ("VVT_FRAME_CACHE_DISK_BYTES", "0"),
        ("VVT_TIME_GRID_SECONDS", "-1"),
        ("VVT_TIME_GRID_SECONDS", "inf"),
        ("VVT_TIME_GRID_SECONDS", "often"),
    ],
)
def test_settings_that_make_no_sense(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        settings(**{name: value})
    assert repr(value) in str(caught.value)


# --------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.slow
def test_memory_stays_flat(video: Video, tmp_path: Path) -> None:
    provider = provider_of(tmp_path, capacity_bytes=4 << 20)
    random, process = np.random.default_rng(0), psutil.Process()
    resident_bytes = []
    for _ in range(3):
        for _ in range(50):
            provider.provide(
                video,
                [FrameRequest(192, 128, indices=tuple(random.integers(0, 300, 8).tolist()))],
                within(60.0),
            )
        resident_bytes.append(process.memory_info().rss)
    assert resident_bytes[-1] - resident_bytes[0] < 8 << 20
    assert 0 < provider.stats().stored_bytes <= 4 << 20


def test_a_bad_disk_tier_leaves_the_memory_tier(video: Video, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    name = f"bad-disk-{os.getpid()}"
    provider = open_provider(settings(VVT_FRAME_CACHE=name, VVT_FRAME_CACHE_DISK=str(tmp_path / "a file")))
    provider.provide(video, [by_index(7)])
    (batch,) = provider.provide(video, [by_index(7)])
    assert batch.num_cached == 1


def test_frames_of_another_version_are_decoded_anew(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache on disk outlives an upgrade, which may change a pixel's last bits."""
    disk = FrameStore(tmp_path / "disk", 64 << 20)
    store = FrameProvider([disk], StripedLocks(tmp_path / "locks"))
    cached = []
    for version in ("1.0", "2.0", "2.0"):
        monkeypatch.setattr(provider_module, "installed_version", lambda name, version=version: version)
        provider_module.decoder_version.cache_clear()
        cached.append(store.provide(video, [by_index(10)])[0].num_cached)
    provider_module.decoder_version.cache_clear()
    assert cached == [0, 0, 1]
