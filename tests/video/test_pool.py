"""Decoding off the event loop: deadlines hold, stuck threads are counted, readers are shared."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import (
    DeadlineError,
    FrameRangeError,
    UnreadableVideoError,
    VideoError,
    VideoNotFoundError,
)
from verl_video_tools.core.types import FrameRequest
from verl_video_tools.video import (
    Video,
    decode_frames,
    decode_many,
    open_video,
    pool_stats,
    run_with_reader,
)
from verl_video_tools.video import pool as pool_module
from verl_video_tools.video.decode_threads import DecodePool, StuckLaneError, result_of
from verl_video_tools.video.identity import FileIdentity, file_identity
from verl_video_tools.video.pool import ReaderCache
from verl_video_tools.video.source import Deadline


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_video(tmp_path / "plain.mp4")


async def until(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition not met in time"
        await asyncio.sleep(0.01)


async def on_a_thread(work: Callable[[], Any], deadline_seconds: float) -> Any:
    return await pool_module._pool().run(work, deadline_seconds, "work")


async def test_frames_are_decoded_on_a_named_thread(path: Path) -> None:
    video = await open_video(path)
    batch = await decode_frames(video, FrameRequest(width=48, height=32, indices=(3, 50)), deadline_seconds=30)
    assert [read_number(frame) for frame in batch.frames_THWC] == [3, 50]
    name = await on_a_thread(lambda: threading.current_thread().name, 5)
    assert name.startswith("vvt-decode")


async def test_work_on_a_reader_knows_the_time_left_and_takes_turns(path: Path) -> None:
    video = await open_video(path)
    spans = []

    def work(reader: Video, deadline: Deadline) -> float:
        assert reader is video
        left_seconds = deadline.left_seconds()
        assert left_seconds is not None
        start = time.monotonic()
        time.sleep(0.05)
        spans.append((start, time.monotonic()))
        return left_seconds

    left = await asyncio.gather(*(run_with_reader(video, work, 30.0, "sleep") for _ in range(3)))
    assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))
    assert 0 < min(left) <= 30.0 - 0.1 < max(left) < 30.0


async def test_errors_of_the_work_arrive(path: Path) -> None:
    video = await open_video(path)
    with pytest.raises(FrameRangeError):
        await decode_frames(video, FrameRequest(width=48, height=32, seconds=(99.0,)), deadline_seconds=30)

    def fail() -> None:
        raise TimeoutError("of the work itself")

    with pytest.raises(TimeoutError, match="of the work itself"):
        await on_a_thread(fail, 30)
    assert pool_stats().stuck_threads == 0


async def test_deadline_holds_although_the_thread_is_stuck() -> None:
    release = threading.Event()
    before = pool_stats().stuck_threads
    start = time.monotonic()
    try:
        with pytest.raises(DeadlineError, match=r"0\.1 s"):
            await on_a_thread(lambda: release.wait(30), 0.1)
        assert time.monotonic() - start < 5.0
        await until(lambda: pool_stats().stuck_threads == before + 1)
    finally:
        release.set()
    await until(lambda: pool_stats().stuck_threads == before)


async def test_deadline_of_a_busy_reader(path: Path) -> None:
    video = await open_video(path)
    request = FrameRequest(width=48, height=32, seconds=(1.0,))
    with video._lock:
        start = time.monotonic()
        with pytest.raises(DeadlineError, match=r"plain\.mp4"):
            await decode_frames(video, request, deadline_seconds=0.1)
        assert time.monotonic() - start < 5.0
    assert pool_stats().stuck_threads == 0  # the thread noticed the deadline itself
    assert (await decode_frames(video, request, deadline_seconds=5)).indices.tolist() == [30]


async def test_work_that_waits_for_a_thread_is_cancelled_at_its_deadline() -> None:
    pool, release, ran = DecodePool(1), threading.Event(), threading.Event()
    blocker = asyncio.create_task(pool.run(release.wait, 10, "blocker"))
    await asyncio.sleep(0.05)
    with pytest.raises(DeadlineError):
        await pool.run(ran.set, 0.05, "waiting")
    assert pool.num_stuck == 0
    release.set()
    await blocker
    assert await pool.run(lambda: "next", 5, "next") == "next"
    assert not ran.is_set()


async def test_a_stuck_thread_is_replaced_and_its_lane_closed() -> None:
    """A pool of one thread goes on working although that one hangs; what waited for the same reader is told so."""
    pool, release = DecodePool(1), threading.Event()
    hanging = asyncio.create_task(pool.run(release.wait, 0.1, "hanging", lane="reader"))
    waiting = asyncio.create_task(pool.run(lambda: "never", 30, "waiting", lane="reader"))
    other = asyncio.create_task(pool.run(lambda: "done", 30, "other", lane="other"))
    with pytest.raises(DeadlineError):
        await hanging
    assert await other == "done"
    with pytest.raises(StuckLaneError):
        await waiting
    assert pool.num_stuck == 1 and pool.is_stuck("reader")
    with pytest.raises(StuckLaneError):
        await pool.run(lambda: "never", 30, "late", lane="reader")
    release.set()
    await until(lambda: pool.num_stuck == 0)
    assert await pool.run(lambda: "open again", 30, "after", lane="reader") == "open again"


async def test_too_many_stuck_threads_are_an_error() -> None:
    pool, release = DecodePool(1, max_stuck_threads=2), threading.Event()
    try:
        for _ in range(2):
            with pytest.raises(DeadlineError):
                await pool.run(release.wait, 0.4, "hanging")
        await until(lambda: pool.num_stuck == 2)
        with pytest.raises(VideoError, match="2 decode threads hang"):
            await pool.run(lambda: None, 5, "refused")
    finally:
        release.set()
    await until(lambda: pool.num_stuck == 0)
    assert await pool.run(lambda: "next", 5, "next") == "next"


async def test_work_of_one_lane_leaves_the_other_threads_free() -> None:
    pool, release = DecodePool(2), threading.Event()
    order: list[int] = []
    first = asyncio.create_task(pool.run(release.wait, 30, "first", lane="reader"))
    behind = [asyncio.create_task(pool.run(lambda n=n: order.append(n), 30, "behind", lane="reader")) for n in range(9)]
    assert await pool.run(lambda: "free", 30, "other") == "free"
    assert order == []
    release.set()
    await asyncio.gather(first, *behind)
    assert order == list(range(9))


@pytest.mark.slow
async def test_cancelled_task_leaves_its_thread_until_the_deadline() -> None:
    pool, started, release = DecodePool(1), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait()

    task = asyncio.create_task(pool.run(work, 1.5, "cancelled"))
    await until(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.num_stuck == 0
    assert await pool.run(lambda: "replaced", 30, "next") == "replaced"
    assert pool.num_stuck == 1
    release.set()
    await until(lambda: pool.num_stuck == 0)


async def test_a_reader_that_hangs_is_replaced_by_a_new_one(path: Path) -> None:
    """The call ends at its deadline; the next one of the same rollout, which still holds that reader, gets frames."""
    video = await open_video(path)
    real_decode, release = video.decode_many, threading.Event()

    def hang(*args: Any) -> Any:
        release.wait(30)
        return real_decode(*args)

    video.decode_many = hang
    request = FrameRequest(width=48, height=32, indices=(20,))
    try:
        start = time.monotonic()
        with pytest.raises(DeadlineError):
            await decode_frames(video, request, deadline_seconds=0.2)
        assert time.monotonic() - start < 5.0
        await until(lambda: pool_stats().stuck_threads == 1)
        batch = await decode_frames(video, request, deadline_seconds=4)  # half of it goes into waiting for the lock
        assert read_number(batch.frames_THWC[0]) == 20
        assert await open_video(path) is not video
    finally:
        release.set()
    await until(lambda: pool_stats().stuck_threads == 0)


async def test_several_sizes_in_one_pass(path: Path) -> None:
    video = await open_video(path)
    requests = [FrameRequest(48, 32, indices=(5, 50, 5)), FrameRequest(96, 64, seconds=(1.0, 5 / 30))]
    small, large = await decode_many(video, requests, deadline_seconds=30)
    assert [read_number(frame) for frame in small.frames_THWC] == [5, 50, 5]
    assert [read_number(frame) for frame in large.frames_THWC] == [30, 5]
    assert large.indices.tolist() == [30, 5] and large.frames_THWC.shape == (2, 64, 96, 3)


def test_a_hanging_thread_does_not_keep_the_process_alive() -> None:
    code = """
import asyncio, threading
from verl_video_tools.core.errors import DeadlineError
from verl_video_tools.video.pool import _pool
try:
    asyncio.run(_pool().run(threading.Event().wait, 0.1, "wait"))
except DeadlineError:
    print("ended")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ended\n", "")


async def test_readers_are_shared_by_those_who_ask_at_the_same_time(path: Path) -> None:
    first, *others = await asyncio.gather(*(open_video(str(path)) for _ in range(8)))
    assert all(video is first for video in others)
    assert first.info.num_frames == 60


async def test_changed_closed_and_failed_files_are_opened_anew(path: Path) -> None:
    first = await open_video(path)
    first.close()
    second = await open_video(path)
    assert second is not first and not second.closed
    write_video(path, num_frames=30)
    os.utime(path, ns=(1, 1))
    assert (await open_video(path)).info.num_frames == 30
    path.write_text("no video")
    with pytest.raises(UnreadableVideoError):
        await open_video(path)
    write_video(path, num_frames=20)
    assert (await open_video(path)).info.num_frames == 20
    path.unlink()
    with pytest.raises(VideoNotFoundError, match=r"plain\.mp4"):
        await open_video(path)


async def test_shelf_is_bounded_and_drops_the_least_recently_asked(tmp_path: Path) -> None:
    paths = [write_video(tmp_path / f"{number}.mp4", num_frames=3) for number in range(3)]
    shelf = ReaderCache(DecodePool(1), capacity=2)

    async def get(number: int) -> Video:
        return await result_of(shelf.request(paths[number], file_identity(paths[number])), 5, "open")

    zero, one = await get(0), await get(1)
    assert await get(0) is zero
    await get(2)
    assert len(shelf) == 2
    assert await get(0) is zero
    assert await get(1) is not one
    assert not one.closed and one.frames_at([0]).indices.tolist() == [0]  # its holder goes on


async def test_open_deadline(path: Path) -> None:
    with pytest.raises(DeadlineError, match=r"plain\.mp4"):
        await open_video(path, deadline_seconds=0.0)
    assert (await open_video(path, deadline_seconds=5)).info.num_frames == 60


async def test_a_file_system_that_does_not_answer_stops_nobody_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network mount whose server is gone: even a look at the file does not come back."""
    release = threading.Event()

    def hang(given: Path) -> FileIdentity:
        release.wait(10)
        return file_identity(given)

    monkeypatch.setattr(pool_module, "file_identity", hang)
    start = time.monotonic()
    opening = asyncio.create_task(open_video(path, deadline_seconds=0.2))
    await asyncio.sleep(0.01)
    assert not opening.done() and time.monotonic() - start < 5.0
    with pytest.raises(DeadlineError, match=r"plain\.mp4"):
        await opening
    assert time.monotonic() - start < 5.0
    assert pool_stats().stuck_threads == 0  # it may answer yet
    release.set()
    assert (await open_video(path, deadline_seconds=30)).info.num_frames == 60


@pytest.fixture
def slow_opens(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DecodePool, threading.Event]]:
    """A pool of one thread that bears two stuck ones, and what ends the opening of all its files."""
    pool, release = DecodePool(1, max_stuck_threads=2), threading.Event()
    shelf = ReaderCache(pool, capacity=16)
    monkeypatch.setattr(pool_module, "_pool", lambda: pool)
    monkeypatch.setattr(pool_module, "_reader_cache", lambda: shelf)

    def open_slowly(*arguments: Any) -> Video:
        release.wait(30)
        return Video(*arguments)

    monkeypatch.setattr(pool_module, "Video", open_slowly)
    yield pool, release
    release.set()


async def test_files_that_open_slowly_do_not_count_as_stuck(
    tmp_path: Path, slow_opens: tuple[DecodePool, threading.Event]
) -> None:
    """Callers with little patience give up on more of them than threads may hang."""
    pool, release = slow_opens
    paths = [write_video(tmp_path / f"{number}.mp4", num_frames=3) for number in range(4)]
    for number, path in enumerate(paths):
        with pytest.raises(DeadlineError):
            await open_video(path, deadline_seconds=0.2)
        if number < 2:
            assert await on_a_thread(lambda: "others go on", 5) == "others go on"
    assert pool.num_stuck == 0
    release.set()
    assert [(await open_video(path, deadline_seconds=30)).info.num_frames for path in paths] == [3] * 4


@pytest.mark.slow
async def test_a_file_that_opens_for_too_long_counts_as_stuck(
    tmp_path: Path, slow_opens: tuple[DecodePool, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, release = slow_opens
    monkeypatch.setattr(pool_module, "MAX_OPEN_SECONDS", 2.0)
    for number in range(3):  # the last one finds as many slow ones as may hang
        path = write_video(tmp_path / f"{number}.mp4", num_frames=3)
        with pytest.raises(DeadlineError):
            await open_video(path, deadline_seconds=0.15)
        await asyncio.sleep(0.15)
    await until(lambda: pool.num_stuck == 3)
    release.set()
    await until(lambda: pool.num_stuck == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "expected"), [("3", "3"), ("0", "VVT_DECODE_THREADS"), ("many", "many")])
def test_pool_size_setting(setting: str, expected: str) -> None:
    code = "from verl_video_tools.video import pool_stats; print(pool_stats().threads)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "VVT_DECODE_THREADS": setting},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert expected in (result.stdout if setting == "3" else result.stderr)
    assert (result.returncode == 0) == (setting == "3")


def test_a_forked_child_starts_its_own_threads(path: Path) -> None:
    """DataLoader workers are forked; the parent's decode threads do not exist in them."""

    def decode() -> int:
        async def first_frame() -> int:
            video = await open_video(path)
            batch = await decode_frames(video, FrameRequest(56, 56, indices=(0,)), deadline_seconds=20)
            return len(batch)

        return asyncio.run(first_frame())

    assert decode() == 1
    child = os.fork()
    if child == 0:
        os._exit(0 if decode() == 1 else 1)
    for _ in range(200):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the forked child waits for threads that do not exist")
