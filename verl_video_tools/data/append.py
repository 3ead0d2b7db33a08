"""Files that grow by whole lines, and the work that fills them. A run that was killed continues where it stopped."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from verl_video_tools.core.errors import EndpointError, UsageError

Item = TypeVar("Item")

Progress = Callable[[int, int], None]
"""Is called with the numbers of items done and of all items."""


def no_progress(num_done: int, num_items: int, note: str = "") -> None:
    """A `Progress` that shows nothing."""


_LINE_START = b'{"step": '
"""Of each record. An end of a file that is no whole line, and no beginning of one, was not left by us."""


@contextmanager
def appended(path: Path) -> Iterator[BinaryIO]:
    """Open and lock the file of records, positioned after its last whole line. An incomplete line of a killed run is
    cut off, as are the zero bytes in which a file may end after a loss of power.

    Raises:
        UsageError: the file cannot be written, another process writes it, or it is a file of another kind, which
            stays unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    with file:
        _lock(file.fileno(), path)
        file.seek(0)
        lines_bytes, last = 0, b""
        for last in file:
            lines_bytes += len(last) if last.endswith(b"\n") else 0
        written = last.rstrip(b"\0")
        if not last.endswith(b"\n") and not written.startswith(_LINE_START[: len(written)]):
            raise UsageError(
                f"{path} is no file to append to: it ends with {last[:40]!r}, not with a line of JSON that begins with "
                f"{_LINE_START.decode()!r}; give another file to write, or remove that end: truncate -s {lines_bytes} "
                f"{path}"
            )
        file.truncate(lines_bytes)
        yield file


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes that call this function for it. Raises UsageError if another process
    holds the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"{path} is being written by another process") from error


def append_record(file: BinaryIO, record: Mapping[str, Any]) -> None:
    """Write one line at once. Values that JSON does not have become strings, and half of a surrogate pair stays
    escaped."""
    line = json.dumps(record, ensure_ascii=False, default=str)
    file.write(line.encode(errors="backslashreplace") + b"\n")
    file.flush()


async def work_through(
    items: Collection[Item],
    work: Callable[[Item], Awaitable[None]],
    concurrency: int,
    progress: Progress = no_progress,
    *,
    num_done: int = 0,
    stopped: str = "",
) -> None:
    """Await `work` for each item. The first failure cancels all running work.

    Args:
        concurrency: number of items in work at a time.
        progress: called after each item.
        num_done: number of items that an earlier run has done.
        stopped: appended to the message of an EndpointError, with the numbers of items done and of all items filled in.

    Raises:
        EndpointError: as `work` does.
    """
    num_items = num_done + len(items)
    waiting = iter(items)

    async def worker() -> None:
        nonlocal num_done
        for item in waiting:
            await work(item)
            num_done += 1
            progress(num_done, num_items)

    workers = [asyncio.create_task(worker()) for _ in range(min(concurrency, len(items)))]
    try:
        await asyncio.gather(*workers)
    except EndpointError as error:
        raise EndpointError(f"{error}{stopped.format(num_done, num_items)}") from error
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
