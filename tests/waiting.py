"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def wait_until(condition: Callable[[], object], what: str, timeout_seconds: float) -> None:
    """Returns once `condition()` holds.

    Raises:
        AssertionError: it did not hold in time.
    """
    end = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_seconds:.0f} s"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that only waits to be collected has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
