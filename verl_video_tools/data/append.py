"""Files that grow by whole lines, so that a run which was killed goes on where it stopped."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from verl_video_tools.core.errors import UsageError


@contextmanager
def appended(path: Path, first_field: str) -> Iterator[BinaryIO]:
    """The file, locked, behind its last whole line: what a killed run left of a line is cut off.

    Args:
        first_field: each line is a JSON object that begins with it. An end that is no such line was not left by us.

    Raises:
        UsageError: it cannot be written, another process writes it, or it is a file of another kind; that is untouched.
    """
    beginning = json.dumps({first_field: 0}).removesuffix("0}").encode()
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
        lines_bytes, last = 0, b""
        for last in file:
            lines_bytes += len(last) if last.endswith(b"\n") else 0
        if not last.endswith(b"\n") and not last.startswith(beginning[: len(last)]):
            raise UsageError(
                f"{path} is no file to append to: it ends with {last[:40]!r}, not with a line of JSON that begins with "
                f"{beginning.decode()!r}; give another file to write"
            )
        file.truncate(lines_bytes)
        yield file
