"""Lines for whoever reads them, without waiting for a reader who has stopped or gone.

A process that must answer signals cannot wait in `write`: a pipe whose reader is `less` fills up.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import TextIO

_MOST_LINES = 10_000
"""That wait for a reader; of more the oldest are lost."""
_LINES_AHEAD = 100
"""That may wait before a writer who can do so should hold back (`has_room`)."""


class PatientOutput:
    """Writes as much as the stream takes at once; the rest waits for the next call.

    Args:
        stream: with a file descriptor; one without, such as `io.StringIO`, gets every line at once. None: no output.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._waiting: deque[bytes] = deque(maxlen=_MOST_LINES)
        self._begun = b""
        try:
            self._descriptor = None if stream is None else stream.fileno()
        except (OSError, ValueError):  # no file (`io.UnsupportedOperation` is both), or closed
            self._descriptor = None

    def write_line(self, line: str) -> None:
        """With escapes for what the stream's encoding does not have. Never raises, and never blocks."""
        if self._stream is None:
            return
        if self._descriptor is None:
            self._stream.write(line + "\n")
            return
        self._waiting.append((line + "\n").encode(self._stream.encoding or "utf-8", "backslashreplace"))
        self.flush()

    def has_room(self, seconds: float = 0.0) -> bool:
        """Whether the reader keeps up with the lines, if need be within so many seconds."""
        if len(self._waiting) > _LINES_AHEAD:
            self.flush(seconds)
        return len(self._waiting) <= _LINES_AHEAD

    def flush(self, seconds: float = 0.0) -> None:
        """Write what waits, for so long at most."""
        if self._descriptor is None:
            return
        deadline = time.monotonic() + seconds
        try:
            while self._begun or self._waiting:
                if not select.select([], [self._descriptor], [], max(0.0, deadline - time.monotonic()))[1]:
                    return
                self._begun = self._begun or self._waiting.popleft()
                # A pipe that is ready takes this many bytes without blocking.
                self._begun = self._begun[os.write(self._descriptor, self._begun[: select.PIPE_BUF]) :]
        except (OSError, ValueError):  # the reader has gone
            self._stream = self._descriptor = None
            self._waiting.clear()
