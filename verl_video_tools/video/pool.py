"""What a process decodes with: its threads, its open readers and its caches, made on first use."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

from verl_video_tools.core.errors import ClosedVideoError, DeadlineError
from verl_video_tools.core.types import FrameBatch, FrameRecord, FrameRequest
from verl_video_tools.video.decode_threads import DecodePool, StuckLaneError, Task, result_of
from verl_video_tools.video.identity import FileIdentity, file_identity
from verl_video_tools.video.provider import CacheStats, FrameProvider, open_provider
from verl_video_tools.video.settings import VideoSettings
from verl_video_tools.video.source import Deadline
from verl_video_tools.video.video import Video

Result = TypeVar("Result")

MAX_OPEN_VIDEOS = 16
"""Readers that hold a file and a decoder at the same time, per process; with more decode threads, one for each. A
decoder of 1920x1080 has some 25 MB, the index of an hour of video about 7."""

MAX_OPEN_SECONDS = 300.0
"""Bound on opening one file, however long those who asked for it are ready to wait."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """State of the process's decode threads and open readers."""

    threads: int
    stuck_threads: int
    """Threads that did not come back from work whose deadline has passed; fresh ones have their place."""
    open_videos: int
    """Readers that have their file open."""


class ReaderCache:
    """Readers by file identity, so that the rollouts of a group share one.

    A file is opened once, however many ask for it at the same time. Beyond `capacity` the least recently asked one is
    dropped; it closes when its last user lets go of it. A reader that hangs is dropped, too.

    Whoever holds them, at most `capacity` have their file open, and more only where each of them is at work: the one
    longest without work releases its own (`Video.release`). Work on it opens the file again, which takes some 20 ms; to
    look for the frames again would take a second in an hour of MPEG-TS.
    """

    def __init__(self, pool: DecodePool, capacity: int) -> None:
        self._pool = pool
        self._capacity = capacity
        self._lock = threading.Lock()
        self._videos: OrderedDict[FileIdentity, Task[Video]] = OrderedDict()
        self._last_work: WeakKeyDictionary[Video, int] = WeakKeyDictionary()
        """Readers that anybody holds -> when the last work on them began, counted in works."""
        self._num_works = 0
        self._at_work: set[Video] = set()
        self._leaving: set[Video] = set()
        """Readers that a thread is about to release."""

    def __len__(self) -> int:
        with self._lock:
            return len(self._videos)

    @property
    def num_open(self) -> int:
        """Readers that have their file open."""
        with self._lock:
            return sum(video.is_open for video in self._last_work)

    def request(self, path: str | os.PathLike[str], identity: FileIdentity) -> Task[Video]:
        """The future of an open reader; whoever awaits it has a deadline of their own."""
        with self._lock:
            task = self._videos.get(identity)
            if task is None or self._is_spent(task):
                task = self._pool.submit(partial(self._open, Path(path)), bound_seconds=MAX_OPEN_SECONDS)
                self._videos[identity] = task
            self._videos.move_to_end(identity)
            while len(self._videos) > self._capacity:
                self._videos.popitem(last=False)
        return task

    @contextmanager
    def work_on(self, video: Video) -> Iterator[None]:
        """For a thread that works on a reader: it may open its file meanwhile."""
        video.is_shared = True
        self._make_room(video)
        try:
            yield
        finally:
            with self._lock:
                self._at_work.discard(video)

    def _open(self, path: Path) -> Video:
        video = Video(path, MAX_OPEN_SECONDS)
        with self.work_on(video):
            return video

    def _make_room(self, video: Video) -> None:
        with self._lock:
            self._num_works += 1
            self._last_work[video] = self._num_works
            self._at_work.add(video)
            opened = {each for each in self._last_work if each.is_open} - self._leaving | self._at_work
            idle = sorted(opened - self._at_work, key=self._last_work.__getitem__)
            surplus = idle[: max(0, len(opened) - self._capacity)]
            self._leaving.update(surplus)
        try:
            for other in surplus:  # without the lock: a file system may take its time
                other.release()
        finally:
            with self._lock:
                self._leaving.difference_update(surplus)

    def _is_spent(self, task: Task[Video]) -> bool:
        """A file that could not be opened is tried again; a reader that somebody closed, or that hangs, is replaced."""
        if not task.done():
            # One caller's patience is not the measure: opening a long file without an index may serve the next one.
            return task.is_past_bound
        if task.cancelled() or task.exception() is not None:
            return True
        return task.result().closed or self._pool.is_stuck(task.result())


@cache
def _settings() -> VideoSettings:
    return VideoSettings.from_environment()


@cache
def _pool() -> DecodePool:
    return DecodePool(_settings().decode_threads)


@cache
def _reader_cache() -> ReaderCache:
    return ReaderCache(_pool(), MAX_OPEN_VIDEOS)


@cache
def _provider() -> FrameProvider:
    return open_provider(_settings())


def _forget_state() -> None:
    for made in (_reader_cache, _pool, _provider):
        made.cache_clear()


# Neither threads nor the state of locks survive a fork: a child, such as a DataLoader worker, must start its own.
os.register_at_fork(after_in_child=_forget_state)


async def run_with_reader(
    video: Video, work: Callable[[Video, Deadline], Result], deadline_seconds: float, what: str
) -> Result:
    """Await `work(video, deadline)` on a decode thread; works on one reader take turns, and wait without a thread.

    Should the reader hang, having missed a deadline, or be closed since its file failed or its table is wrong, the file
    is opened anew, and `work` begins again.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
    """
    deadline = Deadline(deadline_seconds, what := f"{video.path}: {what}")
    readers = _reader_cache()

    def at_work(reader: Video) -> Result:
        with readers.work_on(reader):
            return work(reader, deadline)

    while True:
        try:
            return await _pool().run(partial(at_work, video), deadline.left_seconds(), what, lane=video)
        except (StuckLaneError, ClosedVideoError):
            video = await open_video(video.path, deadline.left_seconds())


async def index_at(video: Video, deadline_seconds: float, seconds: float) -> int:
    """Await the index of the frame shown at a time: another rollout's decode may hold the reader meanwhile.

    Raises:
        FrameRangeError: the time is outside the video.
        DeadlineError: not done by the deadline.
    """
    return await run_with_reader(
        video, lambda reader, deadline: reader.index_at(seconds, deadline), deadline_seconds, "index of a frame"
    )


async def planned_frames(video: Video, request: FrameRequest, deadline_seconds: float) -> list[FrameRecord]:
    """Await indices and presentation times of the frames of a request; none is decoded. See `Video.planned`.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
        VideoError: see `Video.frames_at`.
    """
    provider = _provider()
    return await run_with_reader(
        video,
        lambda reader, deadline: provider.planned(reader, request, deadline),
        deadline_seconds,
        f"find {len(request)} frames",
    )


async def decode_frames(
    video: Video, request: FrameRequest, deadline_seconds: float, prefetch: Sequence[FrameRequest] = ()
) -> FrameBatch:
    """Await the frames of a request, from the caches or decoded on a decode thread.

    Args:
        prefetch: what others are about to ask of the video; see `FrameProvider.provide`.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
        VideoError: see `Video.frames_at`.
    """
    return (await decode_many(video, [request], deadline_seconds, prefetch))[0]


async def decode_many(
    video: Video, requests: Sequence[FrameRequest], deadline_seconds: float, prefetch: Sequence[FrameRequest] = ()
) -> list[FrameBatch]:
    """Await the frames of several requests for one video: each frame is decoded once, whatever sizes are asked of it.

    Should the reader hang, having missed a deadline, the file is opened anew.

    Args:
        prefetch: what others are about to ask of the video; see `FrameProvider.provide`.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
        VideoError: see `Video.frames_at`; one request that cannot be met fails all.
    """
    provider = _provider()

    def work(reader: Video, deadline: Deadline) -> list[FrameBatch]:
        return provider.provide(reader, requests, deadline, prefetch)

    return await run_with_reader(video, work, deadline_seconds, f"decode {sum(map(len, requests))} frames")


async def identify(path: str | os.PathLike[str], deadline_seconds: float | None = None) -> FileIdentity:
    """Await `file_identity` on a decode thread: a file system that is gone may never answer.

    Raises:
        VideoNotFoundError, UnreadableVideoError: see `file_identity`.
        DeadlineError: not done by the deadline.
    """
    work = partial(file_identity, path)
    return await _pool().run(work, deadline_seconds, f"{path}: look at the file", bound_seconds=MAX_OPEN_SECONDS)


async def open_video(path: str | os.PathLike[str], deadline_seconds: float | None = None) -> Video:
    """Await an open, probed reader, shared with all who ask for the same file in this process: do not close it.

    Raises:
        VideoNotFoundError, UnreadableVideoError: see `Video`.
        DeadlineError: not open by the deadline.
    """
    deadline = Deadline(deadline_seconds, f"{path}: open")
    task = _reader_cache().request(path, await identify(path, deadline_seconds))
    try:
        return await result_of(task, deadline.left_seconds(), f"{path}: open")
    except DeadlineError:
        _pool().replace_unless_done(task, in_seconds=0.0)  # it may go on, but others need the thread
        raise
    finally:
        del task  # the traceback of its error has this frame


def pool_stats() -> PoolStats:
    """State of this process's decode threads and open readers."""
    return PoolStats(threads=_pool().num_threads, stuck_threads=_pool().num_stuck, open_videos=_reader_cache().num_open)


def cache_stats() -> CacheStats:
    """What this process got from the frame caches, and how full the node's is."""
    return _provider().stats()
