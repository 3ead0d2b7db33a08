"""Waits until a test has run for too long, then ends the pytest process with all that it has started.

Run by path by `tests.hard_limit`, whose child it is. Argument: the process id. Standard input: JSON lines, each with a
test's name and the seconds that it may take from now on; 0 seconds: no test runs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import psutil
from process_trees import descendants_of, kill

DUMP_SECONDS = 5.0
"""That Python gets to print where its threads stand."""


def main(pid: int) -> None:
    test, seconds = "", 0.0

    def ring(*_: Any) -> None:
        if os.getppid() == pid:  # else it has ended by itself
            end(pid, test, seconds)
        sys.exit()

    signal.signal(signal.SIGALRM, ring)
    for line in sys.stdin:
        test, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def end(pid: int, test: str, seconds: float) -> None:
    started = [process for process in descendants_of(pid) if process.pid != os.getpid()]
    print(f"\nHUNG: {test} has not ended within {seconds:g} s; its process {pid} is ended", file=sys.stderr, flush=True)
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        os.kill(pid, signal.SIGABRT)  # pytest's faulthandler prints the threads' stacks, also where one holds the GIL
        patience = time.monotonic() + DUMP_SECONDS
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < patience:
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
    names = kill(started)
    if names:
        print(f"HUNG: {test}: ended with it: {', '.join(names)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
