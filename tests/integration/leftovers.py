"""Processes that a run has left behind, found by a mark in their environment."""

from __future__ import annotations

from contextlib import suppress

import psutil

VARIABLE = "VVT_TEST_RUN"


def kill_processes_of(marker: str) -> None:
    """End what is left of a run: Ray's processes outlive a driver that was killed.

    vLLM's have written their names over their environment, so they are found as children of others.
    """
    left: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.environ().get(VARIABLE) == marker:
                left.update([process, *process.children(recursive=True)])
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
