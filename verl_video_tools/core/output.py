"""Keeps what libraries print out of a command's own output."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from verl_video_tools.core.errors import UsageError


@dataclass
class HeldOutput:
    """What was printed since `hold_output` was entered."""

    discarded: bool = False
    """Not shown in the end."""


@contextmanager
def hold_output() -> Iterator[HeldOutput]:
    """Holds back both output streams, then shows what came on standard error; after a UsageError it is discarded.

    Works on the file descriptors and not on `sys.stdout`: C libraries and child processes are held too, and log
    handlers that were made meanwhile go on writing to the real standard error.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved_stdout, saved_stderr = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        held = HeldOutput()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield held
        except UsageError:
            held.discarded = True  # its message says all; what libraries printed before would hide it
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved_stdout, 1)
            os.dup2(saved_stderr, 2)
            os.close(saved_stdout)
            os.close(saved_stderr)
            if not held.discarded:
                file.seek(0)
                sys.stderr.write(file.read().decode("utf-8", errors="replace"))
                sys.stderr.flush()
