"""Each file is opened in a child process first: what its headers may cost has no bound in FFmpeg itself.

A header of a few hundred bytes may announce 80 million frames, and FFmpeg makes a table of 2 GB for each stream of
them. In a process that trains, such a file would cost the run; in the child it costs a `VideoError`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.child_process import ChildDied, ChildProcess
from verl_video_tools.video.containers import OPEN_OPTIONS, OPEN_SECONDS
from verl_video_tools.video.identity import FileIdentity
from verl_video_tools.video.source import Deadline

CHILD_PROGRAM = Path(__file__).with_name("opening_child.py")

MAX_OPEN_BYTES = 1 << 30
"""Memory that opening a file may take: an hour of video takes some MB, pictures of 8K with 16 references most of it."""

MAX_OPEN_CPU_SECONDS = 10.0
"""CPU time that it may take; ordinary files take milliseconds."""

MAX_IDLE_CHILDREN = 2
"""Processes kept for the next file, of 30 MB each; more are started while more files are opened at the same time."""

MAX_REMEMBERED = 100_000
"""Files whose check is not repeated."""


class OpeningCheck:
    """Children that open files, and the files that passed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._passed: set[FileIdentity] = set()

    def check(self, identity: FileIdentity, deadline: Deadline) -> None:
        """Return if a file can be opened within the limits, or is none that FFmpeg opens at all.

        Raises:
            UnreadableVideoError: it takes too much memory or CPU time, or FFmpeg crashes.
            DeadlineError: it takes too long.
        """
        if identity in self._passed or not os.path.isfile(identity.path):
            return
        child = self._take()
        try:
            self._ask(child, identity, deadline)
        except BaseException:
            child.kill()
            raise
        with self._lock:
            if len(self._passed) >= MAX_REMEMBERED:
                self._passed.clear()
            self._passed.add(identity)
            is_kept = len(self._idle) < MAX_IDLE_CHILDREN
            if is_kept:
                self._idle.append(child)
        if not is_kept:
            child.kill()

    def _take(self) -> ChildProcess:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_running:
                    return child
        return ChildProcess([sys.executable, "-P", str(CHILD_PROGRAM)])

    def _ask(self, child: ChildProcess, identity: FileIdentity, deadline: Deadline) -> None:
        left_seconds = deadline.left_seconds()
        if left_seconds is None or left_seconds > OPEN_SECONDS:
            left_seconds, deadline = OPEN_SECONDS, Deadline(OPEN_SECONDS, f"{identity.path}: open")
        request = {
            "path": identity.path,
            "options": OPEN_OPTIONS,
            "memory_bytes": MAX_OPEN_BYTES,
            "cpu_seconds": MAX_OPEN_CPU_SECONDS,
            "limit_seconds": left_seconds + 1.0,
        }
        refused = f"{identity.path}: it is not read, since opening it"
        try:
            memory_bytes = child.ask(request, deadline)["memory_bytes"]
        except ChildDied as death:
            if death.exit_code == -signal.SIGPROF:
                raise UnreadableVideoError(
                    f"{refused} takes more than {MAX_OPEN_CPU_SECONDS:g} s of CPU time"
                ) from None
            raise UnreadableVideoError(f"{refused} ended the process that tried: {death}") from death
        if memory_bytes > MAX_OPEN_BYTES:
            raise UnreadableVideoError(
                f"{refused} takes {memory_bytes / 1e9:.1f} GB of memory, more than {MAX_OPEN_BYTES / 1e9:.1f}; "
                "if it is a sound video, copy it with `ffmpeg -i OLD -c copy NEW.mp4`"
            )

    def end_idle(self) -> None:
        """End the children that wait for a next file."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    def disown(self) -> None:
        """In a forked process: the children are the other process's, and only that may talk to them or end them."""
        for child in self._idle:
            child.disown()


_check = OpeningCheck()
_disowned: list[OpeningCheck] = []


def check_opening(identity: FileIdentity, deadline: Deadline) -> None:
    """Open a file in a child process, unless this process has done so before; see `OpeningCheck.check`."""
    _check.check(identity, deadline)


def end_idle_children() -> None:
    """Where no file is opened for long; the next one starts a child again."""
    _check.end_idle()


def _start_anew() -> None:
    global _check
    _check.disown()
    _disowned.append(_check)
    _check = OpeningCheck()


os.register_at_fork(after_in_child=_start_anew)
