"""Decoding off the event loop: deadlines hold, a thread that hangs stops nobody else, readers are shared."""

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
from verl_video_tools.video import Video, decode_frames, decoding, index_at, open_video, planned_frames
from verl_video_tools.video.source import Deadline
from verl_video_tools.video.video import FileIdentity, file_identity


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_video(tmp_path / "plain.mp4")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What lets threads go on that hang until then."""
    event = threading.Event()
    yield event
    event.set()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition not met in time"
        await asyncio.sleep(0.01)


async def on_a_thread(work: Callable[[], Any], deadline_seconds: float) -> Any:
    return await decoding._decoding().run(work, Deadline(deadline_seconds, "work"))


async def on_reader(video: Video, work: Callable[[Video], Any], deadline_seconds: float = 30.0) -> Any:
    return await decoding._on_reader(video, lambda reader, _: work(reader), deadline_seconds, "work")


def frame(index: int) -> FrameRequest:
    return FrameRequest(width=48, height=32, indices=(index,))


async def test_frames_are_decoded_on_a_thread(path: Path) -> None:
    video = await open_video(path)
    batch = await decode_frames(video, FrameRequest(width=48, height=32, indices=(3, 50)), deadline_seconds=30)
    assert [read_number(picture) for picture in batch.frames_THWC] == [3, 50]
    assert await on_a_thread(lambda: threading.current_thread().name, 5) == "vvt-decode"


async def test_works_on_a_reader_take_turns_and_know_the_time_left(path: Path) -> None:
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

    left = await asyncio.gather(*(decoding._on_reader(video, work, 30.0, "sleep") for _ in range(3)))
    assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))
    assert 0 < min(left) <= 30.0 - 0.1 < max(left) < 30.0


async def test_what_the_index_tells_waits_for_no_turn(path: Path, release: threading.Event) -> None:
    """All rollouts of a worker look frames up while one of them decodes, or hangs."""
    video, started = await open_video(path), threading.Event()

    def work(_: Video) -> bool:
        started.set()
        return release.wait(30)

    hanging = asyncio.create_task(on_reader(video, work))
    await until(started.is_set)
    assert await index_at(video, 0.0, 0.5) == 15
    (record,) = await planned_frames(video, frame(30), 0.0)
    assert (record.index, record.timestamp_seconds) == (30, 1.0)
    assert not hanging.done()
    release.set()
    await hanging


async def test_the_index_of_a_reader_that_was_closed_is_made_anew(path: Path) -> None:
    video = await open_video(path)
    video.close()
    write_video(path, num_frames=20)
    with pytest.raises(FrameRangeError):
        await planned_frames(video, frame(30), 30.0)
    assert await index_at(video, 30.0, 0.5) == 15


async def test_errors_of_the_work_arrive(path: Path) -> None:
    video = await open_video(path)
    with pytest.raises(FrameRangeError):
        await decode_frames(video, FrameRequest(width=48, height=32, seconds=(99.0,)), deadline_seconds=30)

    def fail() -> None:
        raise TimeoutError("of the work itself")

    with pytest.raises(TimeoutError, match="of the work itself"):
        await on_a_thread(fail, 30)


async def test_a_reader_that_hangs_fails_its_rollouts_by_name_and_no_others(
    path: Path, tmp_path: Path, release: threading.Event
) -> None:
    """Also more of them than there are threads, and the event loop goes on."""
    video, other = await open_video(path), await open_video(write_video(tmp_path / "other.mp4"))
    hanging = [asyncio.create_task(on_reader(video, lambda _: release.wait(30), 0.5)) for _ in range(20)]
    await asyncio.sleep(0)
    assert (await decode_frames(other, frame(5), deadline_seconds=30)).indices.tolist() == [5]
    for task in hanging:
        with pytest.raises(DeadlineError, match=r"plain\.mp4: work: not done within 0\.5 s"):
            await task
    assert (await decode_frames(other, frame(6), deadline_seconds=30)).indices.tolist() == [6]
    release.set()
    assert read_number((await decode_frames(video, frame(20), deadline_seconds=30)).frames_THWC[0]) == 20


async def test_the_deadline_of_a_busy_reader(path: Path) -> None:
    video = await open_video(path)
    with video._lock:
        with pytest.raises(DeadlineError, match=r"plain\.mp4"):
            await decode_frames(video, frame(30), deadline_seconds=0.1)
        await until(lambda: decoding._num_threads == 0)  # the thread noticed the deadline itself
    assert (await decode_frames(video, frame(30), deadline_seconds=5)).indices.tolist() == [30]


async def test_work_that_waits_for_its_turn_is_dropped_at_its_deadline(path: Path, release: threading.Event) -> None:
    video, ran = await open_video(path), threading.Event()
    blocker = asyncio.create_task(on_reader(video, lambda _: release.wait(30)))
    await asyncio.sleep(0.05)
    with pytest.raises(DeadlineError):
        await on_reader(video, lambda _: ran.set(), 0.05)
    release.set()
    await blocker
    assert await on_reader(video, lambda _: "next") == "next"
    assert not ran.is_set()


async def test_a_cancelled_rollout_leaves_its_reader_usable(path: Path, release: threading.Event) -> None:
    video, started = await open_video(path), threading.Event()

    def work(_: Video) -> None:
        started.set()
        release.wait(30)

    task = asyncio.create_task(on_reader(video, work))
    await until(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await on_reader(video, lambda reader: reader.info.num_frames) == 60


async def test_too_many_threads_that_hang_are_an_error(
    release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: decoding._num_threads == 0)
    monkeypatch.setattr(decoding, "MAX_DECODING", 1)
    monkeypatch.setattr(decoding, "MAX_ABANDONED", 1)
    for _ in range(2):
        with pytest.raises(DeadlineError):
            await on_a_thread(lambda: release.wait(30), 0.1)
    with pytest.raises(VideoError, match="2 decode threads are at work, most of them past their deadlines"):
        await on_a_thread(lambda: None, 5)
    release.set()
    await until(lambda: decoding._num_threads == 0)
    assert await on_a_thread(lambda: "next", 5) == "next"


@pytest.mark.parametrize(("cpus", "processes", "threads"), [(96, 16, 6), (96, 1, 16), (200, 16, 12), (8, 8, 4)])
async def test_processes_of_a_machine_share_its_cpus(
    cpus: int, processes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_num_processes", 1)
    monkeypatch.setattr(decoding.os, "sched_getaffinity", lambda _: set(range(cpus)))
    decoding.share_cpus(processes)
    slots = decoding._Decoding()._slots
    for _ in range(threads):
        await asyncio.wait_for(slots.acquire(), 1)
    assert slots.locked()


def test_a_hanging_thread_does_not_keep_the_process_alive() -> None:
    code = """
import asyncio, threading
from verl_video_tools.core.errors import DeadlineError
from verl_video_tools.video import decoding
from verl_video_tools.video.source import Deadline

async def hang():
    await decoding._decoding().run(threading.Event().wait, Deadline(0.1, "wait"))

try:
    asyncio.run(hang())
except DeadlineError:
    print("ended")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ended\n", "")


async def test_readers_are_shared_by_those_who_ask_at_the_same_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def note_and_open(path: Path, deadline_seconds: float) -> Video:
        opened.append(path)
        return Video(path, deadline_seconds)

    monkeypatch.setattr(decoding, "Video", note_and_open)
    first, *others = await asyncio.gather(*(open_video(str(path)) for _ in range(8)))
    assert all(video is first for video in others) and await open_video(path) is first
    assert opened == [path]


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


async def test_open_deadline(path: Path) -> None:
    with pytest.raises(DeadlineError, match=r"plain\.mp4"):
        await open_video(path, deadline_seconds=0.0)
    assert (await open_video(path, deadline_seconds=5)).info.num_frames == 60


async def test_a_file_system_that_does_not_answer_stops_nobody_else(
    path: Path, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network mount whose server is gone: even a look at the file does not come back."""

    def hang(given: Path) -> FileIdentity:
        release.wait(10)
        return file_identity(given)

    monkeypatch.setattr(decoding, "file_identity", hang)
    start = time.monotonic()
    opening = asyncio.create_task(open_video(path, deadline_seconds=0.2))
    await asyncio.sleep(0.01)
    assert not opening.done() and time.monotonic() - start < 5.0
    with pytest.raises(DeadlineError, match=r"plain\.mp4"):
        await opening
    assert time.monotonic() - start < 5.0
    release.set()
    assert (await open_video(path, deadline_seconds=30)).info.num_frames == 60


async def test_a_file_that_opens_slowly_is_opened_once_for_later_callers(
    path: Path, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_slowly(*arguments: Any) -> Video:
        release.wait(30)
        opened.append(Video(*arguments))
        return opened[-1]

    monkeypatch.setattr(decoding, "Video", open_slowly)
    for _ in range(2):
        with pytest.raises(DeadlineError, match=r"plain\.mp4: open"):
            await open_video(path, deadline_seconds=0.2)
    assert await on_a_thread(lambda: "others go on", 5) == "others go on"
    release.set()
    video = await open_video(path, deadline_seconds=30)
    assert opened == [video] and video.info.num_frames == 60


def test_several_event_loops_use_one_reader_and_one_cache(path: Path) -> None:
    async def first_frame() -> tuple[Video, int]:
        video = await open_video(path)
        return video, (await decode_frames(video, frame(0), deadline_seconds=20)).num_cached

    (video, misses), (again, hits) = asyncio.run(first_frame()), asyncio.run(first_frame())
    assert video is again and (misses, hits) == (0, 1)


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
