"""Processes that a run has left behind, found by a mark in their environment."""

from __future__ import annotations

from contextlib import suppress

import psutil

from tests.process_trees import kill

VARIABLE = "VVT_TEST_RUN"


def processes_of(marker: str) -> set[psutil.Process]:
    """Those that live; vLLM's have written their names over their environment, so they are found as children."""
    left: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.environ().get(VARIABLE) == marker:
                left.update([process, *process.children(recursive=True)])
    return left


def kill_processes_of(marker: str) -> None:
    """End what is left of a run: Ray's processes outlive a driver that was killed."""
    kill(processes_of(marker))
