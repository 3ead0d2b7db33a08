"""Frames for coroutines: files are opened and decoded on threads, off the event loop and within deadlines.

Python cannot stop a thread, so work that misses its deadline is abandoned. Each piece of work has a thread of its own:
the interpreter waits at its end for the threads of a `ThreadPoolExecutor`, also for one that hangs in a decoder, and
not for a daemon.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import AbstractEventLoop
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from verl_video_tools.core.errors import ClosedVideoError, VideoError
from verl_video_tools.core.types import FrameBatch, FrameRecord, FrameRequest
from verl_video_tools.video.frame_cache import CacheStats, FrameCache, capacity_bytes
from verl_video_tools.video.source import Deadline
from verl_video_tools.video.video import FileIdentity, Video, file_identity

Result = TypeVar("Result")

MAX_DECODING = 16
"""Threads that decode at the same time, and readers that hold a file and a decoder. A decoder of 1920x1080 has some
25 MB, the index of an hour of video about 7."""

MAX_ABANDONED = 16
"""Threads that go on after their deadline, beyond those that decode. More of them refuse new work: each holds a file
and its decoder."""

MAX_OPEN_SECONDS = 300.0
"""Bound on opening one file, however late the deadlines of its callers are."""


class OpenVideos:
    """The process's readers, one for each file, so that the rollouts of a group share one. Thread-safe.

    A reader lives while anybody holds it. The `capacity` readers that worked last keep their file and decoder; any
    other releases them, and opens the file again for its next work, which takes some 20 ms. To index the file again
    would take a second for an hour of MPEG-TS.
    """

    def __init__(self, capacity: int = MAX_DECODING) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._by_file: WeakValueDictionary[FileIdentity, Video] = WeakValueDictionary()
        self._recent: OrderedDict[Video, None] = OrderedDict()
        self._at_work: set[Video] = set()

    def get(self, identity: FileIdentity) -> Video | None:
        video = self._by_file.get(identity)
        return None if video is None or video.closed else video

    def open(self, path: Path) -> Video:
        video = Video(path, MAX_OPEN_SECONDS)
        with self.work_on(video):
            self._by_file[video.identity] = video
            return video

    @contextmanager
    def work_on(self, video: Video) -> Iterator[None]:
        """For a thread that works on a reader: it may open its file meanwhile."""
        with self._lock:
            self._at_work.add(video)
            self._recent[video] = None
            self._recent.move_to_end(video)
        try:
            self._release_surplus()
            yield
        finally:
            with self._lock:
                self._at_work.discard(video)
            self._release_surplus()

    def _release_surplus(self) -> None:
        with self._lock:
            idle = [video for video in self._recent if video not in self._at_work]
            surplus = idle[: max(0, len(self._recent) - self._capacity)]
            for video in surplus:
                del self._recent[video]
        for video in surplus:  # without the lock: a file system may take its time
            video.release()


_num_processes = 1


def share_cpus(num_processes: int) -> None:
    """Take that part of the CPUs that is left to each of so many processes of this machine that decode.

    An event loop that has decoded keeps the threads that it has.
    """
    global _num_processes
    _num_processes = max(1, num_processes)


class _Decoding:
    """What the coroutines of one event loop share: threads, turns on readers, and files that are being opened."""

    def __init__(self) -> None:
        num_cpus = len(os.sched_getaffinity(0)) // _num_processes  # not the machine's: a job may be allowed a few
        # At least 4, since one that hangs must not stop all others.
        self._slots = asyncio.Semaphore(min(max(num_cpus, 4), MAX_DECODING))
        self._turns: WeakKeyDictionary[Video, asyncio.Lock] = WeakKeyDictionary()
        self._opening: dict[FileIdentity, asyncio.Task[Video]] = {}

    def turn(self, video: Video) -> asyncio.Lock:
        """Held by the one coroutine that works on a reader. Those that wait for it take no thread."""
        return self._turns.setdefault(video, asyncio.Lock())

    async def run(
        self, work: Callable[[], Result], deadline: Deadline, turn: AbstractAsyncContextManager[object] | None = None
    ) -> Result:
        """Await `work()` on a thread; waiting for a turn and for a free thread counts against the deadline.

        Raises:
            DeadlineError: the time is over; a thread that had begun goes on unheeded.
            VideoError: too many threads go on so.
        """
        try:
            # The scope tells our deadline from a TimeoutError of the work itself.
            async with asyncio.timeout(deadline.left_seconds()) as scope, turn or nullcontext(), self._slots:
                return await _start_thread(work)
        except TimeoutError:
            if scope.expired():
                raise deadline.error() from None
            raise

    async def open(self, path: Path, identity: FileIdentity, deadline: Deadline) -> Video:
        """Await a reader of a file that nobody has open. The file is opened once for all who ask for it.

        One caller's patience does not end it: to index a long file may serve the next one.
        """
        task = self._opening.get(identity)
        if task is None:
            work = partial(_videos().open, path)
            task = asyncio.create_task(self.run(work, Deadline(MAX_OPEN_SECONDS, f"{path}: open")))
            self._opening[identity] = task
            task.add_done_callback(partial(self._forget, identity))
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline.left_seconds())
            if not done:
                raise deadline.error()
            return task.result()
        finally:
            del task  # the traceback of its error has this frame

    def _forget(self, identity: FileIdentity, task: asyncio.Task[Video]) -> None:
        del self._opening[identity]
        if not task.cancelled():
            task.exception()  # retrieved, though all callers may have given up


_threads_lock = threading.Lock()
_num_threads = 0


def _start_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """The future result of `work()` on a new thread."""
    global _num_threads
    with _threads_lock:
        if _num_threads >= MAX_DECODING + MAX_ABANDONED:
            raise VideoError(
                f"{_num_threads} decode threads are at work, most of them past their deadlines, so no more work is "
                "taken; look for the files of earlier deadline errors and remove them, or restart this process"
            )
        _num_threads += 1
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    threading.Thread(target=_serve, args=(work, loop, future), name="vvt-decode", daemon=True).start()
    return future


def _serve(work: Callable[[], Result], loop: AbstractEventLoop, future: asyncio.Future[Result]) -> None:
    global _num_threads
    try:
        outcome = partial(_set_result, future, work())
    except BaseException as error:
        outcome = partial(_set_exception, future, error)
    with _threads_lock:
        _num_threads -= 1
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(outcome)
    del outcome, future  # the traceback of an error has this frame, and must not lead back to the error


def _set_result(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():  # else the one who waited has given up
        future.set_result(result)


def _set_exception(future: asyncio.Future[Result], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


_of_loops: dict[AbstractEventLoop, _Decoding] = {}


def _decoding() -> _Decoding:
    loop = asyncio.get_running_loop()
    if loop not in _of_loops:
        for other in list(_of_loops):
            if other.is_closed():
                _of_loops.pop(other, None)
        _of_loops[loop] = _Decoding()
    return _of_loops[loop]


@cache
def _videos() -> OpenVideos:
    return OpenVideos()


@cache
def _cache() -> FrameCache:
    return FrameCache(capacity_bytes())


def _forget_state() -> None:
    global _threads_lock, _num_threads
    _threads_lock, _num_threads = threading.Lock(), 0
    _videos.cache_clear()
    _cache.cache_clear()


# Neither threads nor the state of locks survive a fork: a child, such as a DataLoader worker, must start its own.
os.register_at_fork(after_in_child=_forget_state)


async def _on_reader(
    video: Video, work: Callable[[Video, Deadline], Result], deadline_seconds: float, what: str
) -> Result:
    """Await `work(video, deadline)` on a thread; works on one reader take turns.

    If the reader was closed, since its file failed or its table is wrong, the file is opened again and `work` begins
    again.
    """
    deadline = Deadline(deadline_seconds, f"{video.path}: {what}")

    def at_work(reader: Video) -> Result:
        with _videos().work_on(reader):
            return work(reader, deadline)

    while True:
        try:
            return await _decoding().run(partial(at_work, video), deadline, _decoding().turn(video))
        except ClosedVideoError:
            video = await open_video(video.path, deadline.left_seconds())


async def identify(path: str | os.PathLike[str], deadline_seconds: float | None = None) -> FileIdentity:
    """Await `file_identity` on a thread: a file system that is gone may never answer.

    Raises:
        VideoNotFoundError, UnreadableVideoError: see `file_identity`.
        DeadlineError: not done by the deadline.
    """
    return await _decoding().run(partial(file_identity, path), Deadline(deadline_seconds, f"{path}: look at the file"))


async def open_video(path: str | os.PathLike[str], deadline_seconds: float | None = None) -> Video:
    """Await an open, probed reader, shared with all who ask for the same file in this process: do not close it.

    Raises:
        VideoNotFoundError, UnreadableVideoError: see `Video`.
        DeadlineError: not open by the deadline.
    """
    deadline = Deadline(deadline_seconds, f"{path}: open")
    identity = await identify(path, deadline_seconds)
    return _videos().get(identity) or await _decoding().open(Path(path), identity, deadline)


async def index_at(video: Video, deadline_seconds: float, seconds: float) -> int:
    """The index of the frame shown at a time.

    Raises:
        FrameRangeError: the time is outside the video.
    """
    return await _from_index(video, lambda reader: reader.index_at(seconds), deadline_seconds)


async def planned_frames(video: Video, request: FrameRequest, deadline_seconds: float) -> list[FrameRecord]:
    """Indices and presentation times of the frames of a request; none is decoded. See `Video.planned`.

    Raises:
        VideoError: see `Video.frames_at`.
    """
    return await _from_index(video, lambda reader: reader.planned(request), deadline_seconds)


async def _from_index(video: Video, look_up: Callable[[Video], Result], deadline_seconds: float) -> Result:
    """An answer of the index in memory. It needs neither the file nor a turn, so the event loop answers at once, while
    a thread decodes. Only a reader that was closed, since its file failed, is opened again first."""
    while True:
        try:
            return look_up(video)
        except ClosedVideoError:
            video = await open_video(video.path, deadline_seconds)


async def decode_frames(
    video: Video, request: FrameRequest, deadline_seconds: float, prefetch: Sequence[FrameRequest] = ()
) -> FrameBatch:
    """Await the frames of a request, from the process's cache or decoded on a thread.

    Requests for frames of one video take turns, so that each frame is decoded once.

    Args:
        prefetch: what others are about to request of the video; see `FrameCache.decode`.

    Raises:
        DeadlineError: not done by the deadline, the time spent waiting for a free thread included.
        VideoError: see `Video.frames_at`.
    """
    return await _on_reader(
        video,
        lambda reader, deadline: _cache().decode(reader, request, deadline, prefetch),
        deadline_seconds,
        f"decode {len(request)} frames",
    )


def cache_stats() -> CacheStats:
    """What this process got from its frame cache, and how full the cache is."""
    return _cache().stats()
