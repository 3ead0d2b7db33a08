"""Threads that decode, off the event loop: a sized pool whose deadlines hold, even where native code never returns.

The event loop's default executor is left alone: it serves the whole process, and one stuck decoder in it would stall
whatever else waits there. The threads are daemons: one that hangs does not keep the interpreter from ending.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from verl_video_tools.core.errors import DeadlineError, VideoError

Result = TypeVar("Result")

GRACE_SECONDS = 0.1
"""Time after its deadline in which a thread should notice it; then it counts as stuck."""

MAX_STUCK_THREADS = 16
"""Beyond so many, new work is refused: each holds a file and its decoder."""


class StuckLaneError(VideoError):
    """Work of the same lane hangs; what waited behind it was not begun."""


class Task(Future[Result], Generic[Result]):
    """Work in a pool, and its result. `started_seconds` is on the monotonic clock, None before the work begins.

    Args:
        bound_seconds: how long it may run, whoever gives up on it sooner.
    """

    def __init__(self, work: Callable[[], Result], lane: Hashable | None, bound_seconds: float) -> None:
        super().__init__()
        self.lane = lane
        self.bound_seconds = bound_seconds
        self.is_watched = False
        self.started_seconds: float | None = None
        self._work: Callable[[], Result] | None = work

    @property
    def is_past_bound(self) -> bool:
        return self.started_seconds is not None and time.monotonic() > self.started_seconds + self.bound_seconds

    def begin(self) -> bool:
        """False if the task was cancelled meanwhile."""
        self.started_seconds = time.monotonic()
        return self.set_running_or_notify_cancel()

    def run(self) -> None:
        work, self._work = self._work, None  # what it holds is freed with it
        assert work is not None
        try:
            result = work()
        except BaseException as error:
            self.set_exception(error)
            self = None  # type: ignore[assignment]  # as `concurrent.futures` does: the error's traceback has this frame
        else:
            self.set_result(result)


class DecodePool:
    """Threads for decoding. A call that misses its deadline is abandoned, not killed: Python cannot stop a thread.

    Tasks of one lane run one after the other, and those that wait occupy no thread: a reader serves one caller at a
    time. Where a thread does not come back from an abandoned task, a fresh one takes its place, and its lane is closed
    until it returns. It counts as stuck once the task is past its own bound, too: a slow one is none that hangs.
    """

    def __init__(self, num_threads: int, max_stuck_threads: int = MAX_STUCK_THREADS) -> None:
        self.num_threads = num_threads
        self._max_stuck_threads = max_stuck_threads
        self._condition = threading.Condition()
        self._queue: deque[Task[Any]] = deque()
        self._busy_lanes: set[Hashable] = set()
        self._stuck_lanes: set[Hashable] = set()
        self._num_started = 0
        self._num_idle = 0
        self._replaced: set[Task[Any]] = set()
        """Tasks that still run, on threads whose place another one has."""

    @property
    def num_stuck(self) -> int:
        with self._condition:
            return self._count_stuck()

    def is_stuck(self, lane: Hashable) -> bool:
        with self._condition:
            return lane in self._stuck_lanes

    def submit(
        self, work: Callable[[], Result], lane: Hashable | None = None, bound_seconds: float = 0.0
    ) -> Task[Result]:
        """Queue work.

        Args:
            bound_seconds: see `Task`.

        Raises:
            StuckLaneError: the lane hangs.
            VideoError: too many threads hang.
        """
        task = Task(work, lane, bound_seconds)
        with self._condition:
            if lane in self._stuck_lanes:
                raise StuckLaneError(f"{lane}: a decode thread hangs in it")
            if (num_stuck := self._count_stuck()) >= self._max_stuck_threads:
                raise VideoError(
                    f"{num_stuck} decode threads hang in native code, so no more work is taken; "
                    "look for the files of earlier deadline errors and leave them out, or restart this process"
                )
            self._queue.append(task)
            if len(self._queue) > self._num_idle and self._num_started < self.num_threads:
                self._num_started += 1
                self._start_thread()
            self._condition.notify()
        return task

    async def run(
        self,
        work: Callable[[], Result],
        deadline_seconds: float | None,
        what: str,
        lane: Hashable | None = None,
        bound_seconds: float = 0.0,
    ) -> Result:
        """Await `work()` on a thread of the pool; waiting for a free thread counts against the deadline.

        Args:
            bound_seconds: see `Task`.

        Raises:
            DeadlineError: the time is over; a thread that had begun goes on unheeded.
            StuckLaneError, VideoError: see `submit`.
        """
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        task = self.submit(work, lane, bound_seconds)
        try:
            return await result_of(task, deadline_seconds, what)
        except BaseException:
            if not task.cancel() and end is not None:
                self.replace_unless_done(task, in_seconds=max(0.0, end - time.monotonic()))
            raise
        finally:
            del task  # the traceback of its error has this frame

    def replace_unless_done(self, task: Task[Any], in_seconds: float) -> None:
        """Give a task that runs so long, and the grace, more; then its thread is replaced."""
        if not task.running():
            return
        timer = threading.Timer(in_seconds + GRACE_SECONDS, self._replace, [task])
        timer.daemon = True
        timer.start()

    def _replace(self, task: Task[Any]) -> None:
        with self._condition:
            if not task.running() or task in self._replaced:
                return
            num_slow = len(self._replaced) - self._count_stuck()
            if not task.is_past_bound and num_slow >= self._max_stuck_threads:
                if not task.is_watched:  # each holds a file, too: this one keeps its thread up to its bound
                    task.is_watched = True
                    self.replace_unless_done(task, in_seconds=task.bound_seconds)
                return
            self._replaced.add(task)
            stranded = []
            if task.lane is not None:
                self._stuck_lanes.add(task.lane)
                stranded = [waiting for waiting in self._queue if waiting.lane == task.lane]
                self._queue = deque(waiting for waiting in self._queue if waiting.lane != task.lane)
            self._start_thread()
        for waiting in stranded:
            if waiting.begin():
                waiting.set_exception(StuckLaneError(f"{task.lane}: a decode thread hangs in it"))

    def _count_stuck(self) -> int:
        return sum(task.is_past_bound for task in self._replaced)

    def _start_thread(self) -> None:
        threading.Thread(target=self._serve, name="vvt-decode", daemon=True).start()

    def _serve(self) -> None:
        while True:
            task = self._next()
            task.run()
            with self._condition:
                self._busy_lanes.discard(task.lane)
                if task in self._replaced:
                    self._replaced.discard(task)
                    self._stuck_lanes.discard(task.lane)
                    return  # another thread has its place
            del task  # or its result would live until the next one

    def _next(self) -> Task[Any]:
        with self._condition:
            self._num_idle += 1
            while (task := self._take()) is None:
                self._condition.wait()
            self._num_idle -= 1
            return task

    def _take(self) -> Task[Any] | None:
        """The first task whose lane is free."""
        for task in list(self._queue):
            if task.lane in self._busy_lanes:
                continue
            self._queue.remove(task)
            if task.begin():
                if task.lane is not None:
                    self._busy_lanes.add(task.lane)
                return task
        return None


async def result_of(future: Future[Result], deadline_seconds: float | None, what: str) -> Result:
    """Await a thread's result; giving up leaves the work alone, as others may await it, too.

    Nothing here refers to the future in a circle, not even the traceback of its error: with `asyncio.wrap_future` the
    result, such as an open reader, would live on until the garbage collector's next full run.

    Raises:
        DeadlineError: the time is over.
    """
    try:
        # Once the time is over, whether a thread was quicker than this line must not matter.
        if (deadline_seconds is None or deadline_seconds > 0) and await _is_done(future, deadline_seconds):
            return future.result()
        raise DeadlineError(f"{what}: not done within {deadline_seconds} s; allow more time or ask for less")
    finally:
        del future


async def _is_done(future: Future[Result], patience_seconds: float | None) -> bool:
    """Wait for a future of a thread, so long at most."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: Future[Result]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_wake, waiter)

    future.add_done_callback(wake)
    # Not `wait_for`: that cannot tell our deadline from a TimeoutError of the work itself.
    done, _ = await asyncio.wait({waiter}, timeout=patience_seconds)
    return bool(done)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
