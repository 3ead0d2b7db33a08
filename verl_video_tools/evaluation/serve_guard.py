"""Runs a server until it ends, or is to end, or whoever wanted it is gone; then ends all that is left of it.

    python serve_guard.py STARTER_PID STOP_SECONDS COMMAND...

A process of its own, because nothing in the starter runs any more once that is killed (SIGKILL), and because vLLM's
engine processes outlive an API server that is killed. SIGTERM asks the guard to end the server. Its exit status is the
server's, 128 + N for signal N. It imports nothing of the package, so that it starts at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

POLL_SECONDS = 0.2


def main() -> int:
    """Guards the command that `sys.argv` names; returns the exit status."""
    starter, stop_seconds, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    signals: list[int] = []  # only noted: an exception could come between starting the server and knowing it
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    # A group of its own: one signal reaches the server and its workers, but not the guard.
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while server.poll() is None and not signals and os.getppid() == starter:
        time.sleep(POLL_SECONDS)
    _end(server, stop_seconds)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _end(server: subprocess.Popen[bytes], stop_seconds: float) -> None:
    """Ask the server and its workers to end, and kill what is left of them when it has, or has not in time."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(stop_seconds)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


if __name__ == "__main__":
    sys.exit(main())
