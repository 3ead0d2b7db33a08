"""A folder that all processes of a user on a node share, and that goes away with the last of them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

JANITOR = Path(__file__).with_name("janitor.py")
JANITOR_START_SECONDS = 30.0


def shared_memory_root() -> Path:
    """Where files lie in memory; the folder for temporary files where there is no such place."""
    root = Path("/dev/shm")
    return root if root.is_dir() and os.access(root, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


class SharedFolder:
    """A share in a folder, made if need be; held until the process ends, SIGKILL included, or until `leave`.

    Every user holds a shared lock on `<path>/alive`. A small process of its own, the janitor, waits for the exclusive
    lock and then removes the folder. It is started by whoever finds none at work; one that was killed is replaced by
    the next process that joins.

    Raises:
        OSError: the folder cannot be made, or belongs to somebody else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._alive: int | None = _join(path)
        try:
            _start_janitor(path)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Give up the share. Unlocking first would free a forked child's share as well, so the file is only closed."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None


def _join(path: Path) -> int:
    while True:
        with suppress(FileExistsError):  # `Path.mkdir(exist_ok=True)` fails where it is removed at this moment
            path.mkdir(mode=0o700)
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if status.st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to user id {status.st_uid}; set VVT_FRAME_CACHE to another name")
        try:
            alive = os.open(path / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # removed just now
        try:
            fcntl.flock(alive, fcntl.LOCK_SH)  # waits at most while a janitor takes the folder away
            if os.path.samestat(os.stat(path / "alive"), os.fstat(alive)):
                return alive
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(alive)
            raise
        os.close(alive)


def _start_janitor(path: Path) -> None:
    """Start the janitor unless there is one: it holds the lock of a file that is handed to it open and locked."""
    file = os.open(path / "janitor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        subprocess.run(
            [sys.executable, "-I", "-S", str(JANITOR), str(path)],
            pass_fds=[file],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=JANITOR_START_SECONDS,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"the janitor of {path} did not start: {error}") from error
    finally:
        os.close(file)
