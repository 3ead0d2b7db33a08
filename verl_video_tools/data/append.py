"""Files that grow by whole lines, so that a run which was killed goes on where it stopped."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from verl_video_tools.errors import UsageError


@contextmanager
def appended(path: Path) -> Iterator[BinaryIO]:
    """The file, locked, behind its last whole line: what a killed run left of a line is cut off.

    Raises:
        UsageError: it cannot be written, or another process writes it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{path} is being written by another process") from error
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
        yield file
