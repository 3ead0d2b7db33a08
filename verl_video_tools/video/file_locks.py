"""Locks between processes that no crash leaves behind: the kernel frees a `flock` when its holder dies.

Each hold opens the file anew, so the locks also work between the threads of one process, and after a fork.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, pauses_seconds: Sequence[float]) -> Iterator[int]:
    """Hold a file's lock; gives the open file, which is made if need be.

    Args:
        pauses_seconds: before each further try, should another one hold it.

    Raises:
        BlockingIOError: another one holds it still.
        OSError: the file cannot be opened.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for pause_seconds in (*pauses_seconds, None):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if pause_seconds is None:
                    raise
                time.sleep(pause_seconds)
        try:
            yield file
        finally:
            # A child forked meanwhile has the open file as well, so closing it here would not unlock.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


NUM_STRIPES = 4096


class StripedLocks:
    """Locks by name over a fixed number of files; names that share a file exclude each other now and then.

    Files are made when they are first asked for. There are many, because a holder that hangs delays all whose names
    share its file.
    """

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            OSError: the folder cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    @contextmanager
    def try_hold(self, name: str) -> Iterator[bool]:
        """Hold the lock of a name within the block if it is free; gives whether it is held.

        Where there can be no lock at all, since its folder is gone, the answer is True: these locks spare work, and
        nothing depends on them.
        """
        stripe = self._folder / str(zlib.crc32(name.encode()) % NUM_STRIPES)
        file = None
        try:
            file = os.open(stripe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except OSError as error:
            held = not isinstance(error, BlockingIOError)
        try:
            yield held
        finally:
            if file is not None:
                if held:
                    fcntl.flock(file, fcntl.LOCK_UN)
                os.close(file)
