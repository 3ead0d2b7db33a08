"""Ending processes together with all that they have started. Light: the process of `hard_limit` imports it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil


def descendants_of(pid: int) -> list[psutil.Process]:
    """What the process has started, and they in turn; none where it is gone."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def started_since(processes: Iterable[psutil.Process], unix_seconds: float) -> list[psutil.Process]:
    """Those that have started at this time or later."""
    # Seconds since boot: the kernel tells the time of the boot itself in whole seconds, so that clock times are off.
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - unix_seconds)
    boot = psutil.boot_time()
    one_tick = 0.01
    young = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.create_time() - boot >= since_boot - one_tick:
                young.append(process)
    return young


def kill(processes: Iterable[psutil.Process]) -> list[str]:
    """Kill them; gives the names of those that ran, sorted."""
    names = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            name = process.name()
            if process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                names.append(name)
    return sorted(names)


def output_of(command: Sequence[str], timeout_seconds: float) -> bytes:
    """Standard output of a program that succeeds.

    `subprocess.run` kills the program alone, then waits for those of its children that hold its output open.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and has been killed with all that it has started.
        subprocess.CalledProcessError: it failed.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        except BaseException:
            kill([*descendants_of(process.pid), psutil.Process(process.pid)])
            raise
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return output
