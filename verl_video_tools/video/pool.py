"""Decoding off the event loop: a sized thread pool of its own, deadlines that hold, and shared open readers.

The event loop's default executor is left alone: it serves the whole process, and one stuck decoder in it would stall
whatever else waits there.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from verl_video_tools.errors import DeadlineError, UsageError, VideoNotFoundError
from verl_video_tools.types import FrameBatch, FrameRequest
from verl_video_tools.video.video import Video

Result = TypeVar("Result")

THREADS_VARIABLE = "VVT_DECODE_THREADS"
"""Environment variable: threads that decode at the same time in this process; default: the CPU count."""

MAX_OPEN_VIDEOS = 16
"""Readers kept open per process; each holds about 7 MB for an hour of video."""

MAX_OPEN_SECONDS = 300.0
"""Bound on opening one file, however long those who asked for it are ready to wait."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """State of the process's decode threads and open readers."""

    threads: int
    stuck_threads: int
    """Threads still at work for a caller that gave up at its deadline."""
    open_videos: int


class DecodePool:
    """Threads for decoding. A call that misses its deadline is abandoned, not killed: Python cannot stop a thread."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="vvt-decode")
        self._lock = threading.Lock()
        self._num_stuck = 0

    @property
    def num_stuck(self) -> int:
        with self._lock:
            return self._num_stuck

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        return self._executor.submit(work)

    async def run(self, work: Callable[[], Result], deadline_seconds: float | None, what: str) -> Result:
        """Await `work()` on a thread of the pool; waiting for a free thread counts against the deadline.

        Raises:
            DeadlineError: the time is over; a thread that had begun goes on unheeded and is counted as stuck.
        """
        future = self.submit(work)
        try:
            return await result_of(future, deadline_seconds, what)
        except BaseException:
            self._abandon(future)
            raise

    def _abandon(self, future: Future[Result]) -> None:
        if future.done() or future.cancel():
            return
        with self._lock:
            self._num_stuck += 1
        future.add_done_callback(self._recover)

    def _recover(self, _: Future[Result]) -> None:
        with self._lock:
            self._num_stuck -= 1


async def result_of(future: Future[Result], deadline_seconds: float | None, what: str) -> Result:
    """Await a thread's result; giving up leaves the work alone, as others may await it, too.

    Raises:
        DeadlineError: the time is over.
    """
    waiter = asyncio.wrap_future(future)
    # Not `wait_for`: that cancels the work, and cannot tell our deadline from a TimeoutError of the work itself.
    done, _ = await asyncio.wait({waiter}, timeout=deadline_seconds)
    if not done:
        waiter.add_done_callback(_forget)
        raise DeadlineError(f"{what}: not done within {deadline_seconds} s; allow more time or ask for less")
    return waiter.result()


def _forget(waiter: asyncio.Future[Result]) -> None:
    if not waiter.cancelled():
        waiter.exception()  # seen, so that asyncio does not report it as lost


class VideoShelf:
    """Open readers by (path, size, modification time), so that the rollouts of a group share one.

    A file is opened once, however many ask for it at the same time. Beyond `capacity` the least recently asked one is
    dropped; it closes when its last user lets go of it.
    """

    def __init__(self, pool: DecodePool, capacity: int) -> None:
        self._pool = pool
        self._capacity = capacity
        self._lock = threading.Lock()
        self._videos: OrderedDict[tuple[str, int, int], Future[Video]] = OrderedDict()

    def __len__(self) -> int:
        with self._lock:
            return len(self._videos)

    def request(self, path: Path) -> Future[Video]:
        """The future of an open reader; whoever awaits it has a deadline of their own."""
        try:
            status = path.stat()
        except OSError as error:
            raise VideoNotFoundError(f"{path}: no such video file ({error.strerror})") from error
        key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
        with self._lock:
            future = self._videos.get(key)
            if future is None or _is_spent(future):
                future = self._pool.submit(partial(Video, path, MAX_OPEN_SECONDS))
                self._videos[key] = future
            self._videos.move_to_end(key)
            while len(self._videos) > self._capacity:
                self._videos.popitem(last=False)
        return future


def _is_spent(future: Future[Video]) -> bool:
    """A file that could not be opened is tried again; a reader that somebody closed is replaced."""
    return future.done() and (future.cancelled() or future.exception() is not None or future.result().closed)


@cache
def _pool() -> DecodePool:
    setting = os.environ.get(THREADS_VARIABLE)
    if setting is None:
        return DecodePool(os.cpu_count() or 1)
    if not setting.isdecimal() or int(setting) < 1:
        raise UsageError(f"environment variable {THREADS_VARIABLE} must be a whole number above 0, got {setting!r}")
    return DecodePool(int(setting))


@cache
def _shelf() -> VideoShelf:
    return VideoShelf(_pool(), MAX_OPEN_VIDEOS)


def _forget_threads() -> None:
    _shelf.cache_clear()
    _pool.cache_clear()


# Threads do not survive a fork: a child, such as a DataLoader worker, must start its own.
os.register_at_fork(after_in_child=_forget_threads)


async def run_decode(function: Callable[..., Result], *args: object, deadline_seconds: float | None = None) -> Result:
    """Await `function(*args)` on a decode thread.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
    """
    name = getattr(function, "__qualname__", repr(function))
    return await _pool().run(partial(function, *args), deadline_seconds, name)


async def decode_frames(video: Video, request: FrameRequest, deadline_seconds: float) -> FrameBatch:
    """Await the frames of a request, decoded on a decode thread.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
        VideoError: see `Video.frames_at`.
    """
    end = time.monotonic() + deadline_seconds

    def decode() -> FrameBatch:
        return video.frames(request, deadline_seconds=max(0.0, end - time.monotonic()))

    return await _pool().run(decode, deadline_seconds, f"{video.path}: decode {len(request)} frames")


async def open_video(path: str | os.PathLike[str], deadline_seconds: float | None = None) -> Video:
    """Await an open, probed reader, shared with all who ask for the same file in this process: do not close it.

    Raises:
        VideoNotFoundError, UnreadableVideoError: see `Video`.
        DeadlineError: not open by the deadline.
    """
    future = _shelf().request(Path(path))
    return await result_of(future, deadline_seconds, f"{path}: open")


def pool_stats() -> PoolStats:
    """State of this process's decode threads and open readers."""
    return PoolStats(threads=_pool().num_threads, stuck_threads=_pool().num_stuck, open_videos=len(_shelf()))
