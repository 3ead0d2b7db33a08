"""Frames as files: whole or not there, bounded, shared between processes, no trace of killed writers."""

from __future__ import annotations

import multiprocessing
import os
import resource
import struct
import zlib
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_video_tools.video.batch import FrameFacts
from verl_video_tools.video.frame_store import HEADER, LEDGER, PAGE_BYTES, FrameKey, FrameStore

WIDTH, HEIGHT = 40, 34
FRAME_BYTES = PAGE_BYTES * -(-(HEADER.size + WIDTH * HEIGHT * 3) // PAGE_BYTES)


def key(index: int, video: str = "a") -> FrameKey:
    return FrameKey(video, index, WIDTH, HEIGHT)


def picture(index: int) -> np.ndarray:
    return np.full((HEIGHT, WIDTH, 3), index % 251, dtype=np.uint8)


def write(store: FrameStore, index: int, video: str = "a") -> None:
    store.write(key(index, video), FrameFacts(index, index / 30, False), picture(index))


def read(store: FrameStore, index: int, video: str = "a") -> FrameFacts | None:
    """Facts of a stored frame, after a look at its pixels."""
    into_HWC = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    facts = store.read(key(index, video), into_HWC)
    if facts is not None:
        np.testing.assert_array_equal(into_HWC, picture(index))
    return facts


def frame_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "frames").rglob("*") if path.is_file()]


def test_a_frame_comes_back_with_its_facts(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, 1 << 20)
    facts = FrameFacts(index=12, timestamp_seconds=0.1 + 0.2, corrupt=True)
    store.write(key(7), facts, picture(7))
    assert read(FrameStore(tmp_path, 1 << 20), 7) == facts
    for other in (key(8), key(7, "b")):
        assert store.read(other, picture(0)) is None
    assert store.read(FrameKey("a", 7, HEIGHT, WIDTH), np.empty((WIDTH, HEIGHT, 3), np.uint8)) is None
    assert store.stored_bytes == FRAME_BYTES
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_row_that_is_not_contiguous_can_be_written(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, 1 << 20)
    turned = np.rot90(np.arange(HEIGHT * WIDTH * 3, dtype=np.uint8).reshape(WIDTH, HEIGHT, 3))
    store.write(key(0), FrameFacts(0, 0.0, False), turned)
    into_HWC = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    assert store.read(key(0), into_HWC) is not None
    np.testing.assert_array_equal(into_HWC, turned)


def swapped(header: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of an image of the same bytes, that many wide as the other is high."""
    magic, width, height, *rest = header
    return (magic, height, width, *rest)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: HEADER.size - 1],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"othermag" + data[8:],
        lambda data: HEADER.pack(*swapped(HEADER.unpack(data[: HEADER.size]))) + data[HEADER.size :],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],  # index, time and mark of the frame shown
        lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:],
        lambda data: data[:32] + bytes([data[32] ^ 1]) + data[33:],
    ],
)
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, damage) -> None:
    store = FrameStore(tmp_path, 1 << 20)
    write(store, 3)
    (file,) = frame_files(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert read(store, 3) is None
    assert not file.exists()
    write(store, 3)
    assert read(store, 3) == FrameFacts(3, 0.1, False)


@pytest.mark.parametrize(("index", "video"), [(4, "a"), (3, "b")])
def test_a_frame_under_the_name_of_another_is_a_miss(tmp_path: Path, index: int, video: str) -> None:
    store = FrameStore(tmp_path, 1 << 20)
    write(store, 3)
    (file,) = frame_files(tmp_path)
    write(store, index, video)
    (other,) = set(frame_files(tmp_path)) - {file}
    other.replace(file)
    assert read(store, 3) is None


def test_the_least_recently_used_frames_go(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, 10 * FRAME_BYTES)
    for index in range(10):
        write(store, index)
        os.utime(tmp_path / "frames" / "a" / f"{index}-{WIDTH}x{HEIGHT}", (index, index))  # clocks are coarse
    assert read(store, 0) is not None  # used: now the youngest
    write(store, 10)
    assert store.stored_bytes <= 10 * FRAME_BYTES
    assert read(store, 0) is not None and read(store, 10) is not None
    assert read(store, 1) is None


@pytest.fixture
def num_scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a store has looked at all its files."""
    scans: list[int] = []
    evict = FrameStore._evict

    def counted(store: FrameStore, target_bytes: int) -> int:
        scans.append(target_bytes)
        return evict(store, target_bytes)

    monkeypatch.setattr(FrameStore, "_evict", counted)
    return scans


@pytest.mark.parametrize("num_fast", [1, 20])
def test_files_that_cannot_be_deleted_do_not_cost_a_look_at_all_per_write(
    tmp_path: Path, num_scans: list[int], monkeypatch: pytest.MonkeyPatch, num_fast: int
) -> None:
    """The oldest stays and others go; where all stay, nothing more is kept."""
    store = FrameStore(tmp_path, 20 * FRAME_BYTES)
    for index in range(20):
        write(store, index)
        os.utime(tmp_path / "frames" / "a" / f"{index}-{WIDTH}x{HEIGHT}", (index, index))
    num_scans.clear()
    unlink = os.unlink

    def refused(path: Any, **options: Any) -> None:
        if "frames" in str(path) and int(Path(path).name.partition("-")[0]) < num_fast:
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refused)
    for index in range(20, 23):
        write(store, index)
    assert len(num_scans) == 1
    assert read(store, 0) is not None
    assert (read(store, 22) is not None) == (num_fast == 1)
    assert store.stored_bytes == len(frame_files(tmp_path)) * FRAME_BYTES <= 20 * FRAME_BYTES


def test_a_frame_larger_than_the_store_is_not_kept(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, FRAME_BYTES - 1)
    write(store, 0)
    assert read(store, 0) is None and store.stored_bytes == 0


def test_writing_twice_counts_once(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, 1 << 20)
    write(store, 0)
    write(store, 0)
    assert store.stored_bytes == FRAME_BYTES and len(frame_files(tmp_path)) == 1


def test_what_killed_writers_left_is_swept(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, 3 * FRAME_BYTES)
    old, young = tmp_path / "incoming" / "old", tmp_path / "incoming" / "young"
    old.write_bytes(b"half a frame")
    young.write_bytes(b"being written")
    os.utime(old, (1, 1))
    for index in range(5):
        write(store, index, video=f"video {index}")
    assert not old.exists() and young.exists()
    assert len(list((tmp_path / "frames").iterdir())) <= 3  # nor do folders of videos without frames stay


def test_a_lost_ledger_is_made_anew(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, 10 * FRAME_BYTES)
    for index in range(4):
        write(store, index)
    (tmp_path / "ledger").write_bytes(b"")
    write(store, 4)
    assert store.stored_bytes == 5 * FRAME_BYTES


BELOW_ZERO = struct.pack("<q", -1 << 40)


@pytest.mark.parametrize(
    "ledger",
    [
        BELOW_ZERO + struct.pack("<I", zlib.crc32(BELOW_ZERO)),
        bytes(LEDGER.size),
        b"\1" * LEDGER.size,
    ],
)
def test_a_damaged_ledger_does_not_lift_the_bound(tmp_path: Path, ledger: bytes) -> None:
    store = FrameStore(tmp_path, 4 * FRAME_BYTES)
    for index in range(4):
        write(store, index)
    (tmp_path / "ledger").write_bytes(ledger)
    for index in range(4, 9):
        write(store, index)
    assert 0 < store.stored_bytes == len(frame_files(tmp_path)) * FRAME_BYTES <= 4 * FRAME_BYTES


def test_a_folder_that_may_not_be_entered_holds_no_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Path.exists` raises for it, as in a folder that another user has made; and root may enter any folder."""

    def refused(self: Path, **options: bool) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(self))

    store = FrameStore(tmp_path, 1 << 20)
    monkeypatch.setattr(Path, "stat", refused)
    assert not store.has(key(1))


def test_no_space_is_a_warning_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FrameStore(tmp_path, 1 << 20)
    write(store, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        write(store, 1)
        write(store, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(caplog.records) == 1
    assert read(store, 0) is not None and read(store, 1) is None
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_folder_that_vanishes_is_no_error(tmp_path: Path) -> None:
    store = FrameStore(tmp_path / "store", 1 << 20)
    write(store, 0)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert read(store, 0) is None
    write(store, 0)
    assert store.stored_bytes == 0


NUM_PAUSES = 5


def _write_and_read(folder: Path, capacity_bytes: int, seed: int, num_frames: int, barrier: Barrier) -> None:
    store = FrameStore(folder, capacity_bytes)
    rng = np.random.default_rng(seed)
    for _ in range(NUM_PAUSES):
        for index in rng.integers(0, 200, num_frames).tolist():
            if read(store, index) is None:
                write(store, index)
        barrier.wait()  # the others have written too
        barrier.wait()  # the test has counted


@pytest.mark.slow
def test_capacity_holds_while_processes_write(tmp_path: Path) -> None:
    capacity_bytes, num_workers = 50 * FRAME_BYTES, 2
    spawn = multiprocessing.get_context("spawn")
    # Frames are counted while nobody writes: a count beside writers sees what is dropped and what is added during it.
    barrier = spawn.Barrier(num_workers + 1, timeout=120)
    workers = [
        spawn.Process(target=_write_and_read, args=(tmp_path, capacity_bytes, seed, 300, barrier), daemon=True)
        for seed in range(num_workers)
    ]
    for worker in workers:
        worker.start()
    for _ in range(NUM_PAUSES):
        barrier.wait()
        num_frames = len(frame_files(tmp_path))
        assert 40 <= num_frames <= 50
        assert LEDGER.unpack((tmp_path / "ledger").read_bytes())[0] == num_frames * FRAME_BYTES
        barrier.wait()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * num_workers
