"""A child process that is asked one thing at a time and killed if it does not answer: native code may hang or crash."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import IO, Any

from verl_video_tools.video.source import Deadline

READ_BYTES = 1 << 20


class ChildDied(Exception):
    """The process ended instead of answering; the message says how."""


class ChildProcess:
    """Sends JSON lines to a program's standard input and reads JSON lines and raw bytes from its standard output.

    After a `DeadlineError` or `ChildDied` the process is gone. Not thread-safe.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._unread = bytearray()
        self._end = weakref.finalize(self, _end, self._process, self._errors)

    def ask(self, message: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Send a message and await the line that answers it.

        Raises:
            ChildDied: the process ended.
            DeadlineError: no answer in time.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            raise self._death() from None
        while (newline := self._unread.find(b"\n")) < 0:
            self._read(deadline)
        line = bytes(self._unread[:newline])
        del self._unread[: newline + 1]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def read_bytes(self, size: int, deadline: Deadline) -> bytearray:
        """Await raw bytes that follow an answer; raises as `ask`."""
        while len(self._unread) < size:
            self._read(deadline)
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def take_error_text(self) -> str:
        """What the process wrote to standard error since the last call."""
        text = os.pread(self._errors.fileno(), READ_BYTES, 0)
        self._errors.truncate(0)
        return text.strip(b"\0").decode(errors="replace").strip()

    def kill(self) -> None:
        self._end()

    def _read(self, deadline: Deadline) -> None:
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN | select.POLLHUP)
        left_seconds = deadline.left_seconds()
        if not poll.poll(None if left_seconds is None else left_seconds * 1000):
            self.kill()
            raise deadline.error()
        data = os.read(self._process.stdout.fileno(), READ_BYTES)
        if not data:
            raise self._death()
        self._unread += data

    def _death(self) -> ChildDied:
        code = self._process.wait()
        last_line = self.take_error_text().splitlines()[-1:] or ["no message"]
        self.kill()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ChildDied(f"its process {how} ({last_line[0]})")


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            stream.close()
