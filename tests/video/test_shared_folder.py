"""A folder for all, gone with the last user, however that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from verl_video_tools.video.shared_folder import SharedFolder, shared_memory_root

JOIN = """
import sys, time
from pathlib import Path
from verl_video_tools.video.shared_folder import SharedFolder
folder = SharedFolder(Path(sys.argv[1]))
(folder.path / "frame").write_bytes(b"pixels")
print("joined", flush=True)
time.sleep(60)
"""


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition not met in time"
        time.sleep(0.01)


def join(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", JOIN, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "joined\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def janitors(path: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if str(path) in (process.info["cmdline"] or [])]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "shared"
    yield path
    until(lambda: not path.exists() and not janitors(path))  # in every test: nothing stays


@pytest.mark.slow
def test_folder_lives_as_long_as_any_user(path: Path) -> None:
    first, second = join(path), join(path)
    assert len([process for process in janitors(path) if "janitor.py" in " ".join(process.cmdline())]) == 1
    kill(first)
    time.sleep(0.2)
    assert (path / "frame").exists()
    kill(second)
    until(lambda: not path.exists())
    until(lambda: list(path.parent.iterdir()) == [])


def test_the_next_user_finds_a_new_folder(path: Path) -> None:
    kill(join(path))
    until(lambda: not path.exists())
    kill(join(path))


@pytest.mark.slow
def test_a_janitor_survives_what_ends_a_job_and_is_replaced_if_killed(path: Path) -> None:
    user = join(path)
    janitor = next(process for process in janitors(path) if process.pid != user.pid)
    janitor.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert janitor.is_running()
    janitor.kill()
    until(lambda: not janitor.is_running() or janitor.status() == psutil.STATUS_ZOMBIE)
    other = join(path)
    kill(user)
    kill(other)


def test_joining_while_the_janitor_is_at_work(path: Path) -> None:
    """A share is a share in the folder that is there, never in one that is being removed."""
    for _ in range(25):
        folder = SharedFolder(path)
        (path / "frame").write_bytes(b"pixels")
        time.sleep(0.01)
        assert (path / "frame").exists() and (path / "alive").exists()
        folder.leave()


def test_a_forked_child_keeps_the_folder(path: Path) -> None:
    folder = SharedFolder(path)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    folder.leave()
    time.sleep(0.2)
    assert path.exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_folder_of_somebody_else_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="VVT_FRAME_CACHE"):
        SharedFolder(path)
    path.rmdir()


@pytest.mark.parametrize(
    ("is_there", "allowed", "is_used"),
    [
        (True, os.R_OK | os.W_OK | os.X_OK, True),
        (False, os.R_OK | os.W_OK | os.X_OK, False),
        (True, os.R_OK | os.X_OK, False),
        (True, os.R_OK | os.W_OK, False),
    ],
)
def test_shared_memory_is_used_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch, is_there: bool, allowed: int, is_used: bool
) -> None:
    other = Path(tempfile.gettempdir())
    monkeypatch.setattr(Path, "is_dir", lambda path: is_there and path == Path("/dev/shm"))
    monkeypatch.setattr(os, "access", lambda path, mode: mode & allowed == mode)
    assert shared_memory_root() == (Path("/dev/shm") if is_used else other)


def test_a_folder_may_be_removed_while_it_is_joined(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    made = Path.mkdir

    def mkdir(self: Path, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(Path, "mkdir", made)
        try:
            made(self, *arguments, **options)
        finally:
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    SharedFolder(path).leave()
