"""What a process costs while it is measured: CPU seconds, its event loop's share and longest pause, memory."""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import threading
import time
from pathlib import Path
from typing import Any

_TICK_SECONDS = 0.002


class LoopProbe:
    """Measures this process and the event loop that calls `start`.

    A task sleeps 2 ms again and again. How late it wakes is a pause as rollouts meet it (`pause_seconds`); what the
    loop's thread computed in the meantime is the part of it that is work, and not another process that had the core
    (`busy_pause_seconds`). The task's own CPU time is measured while nothing else runs, and taken off.
    """

    async def start(self, *, profile: bool = False) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._tick_seconds = 0.0
        self._watcher = asyncio.create_task(self._watch())
        await self._calibrate()
        _forget_peak_memory()
        self.pause_seconds = self.busy_pause_seconds = 0.0
        self._num_ticks = 0
        self._profile = _Profile() if profile else None
        self._before = (time.clock_gettime(self._clock), time.process_time(), time.perf_counter())

    async def stop(self) -> dict[str, Any]:
        loop, process, wall = time.clock_gettime(self._clock), time.process_time(), time.perf_counter()
        self._watcher.cancel()
        watching = self._num_ticks * self._tick_seconds
        result: dict[str, Any] = {
            "loop_cpu_seconds": loop - self._before[0] - watching,
            "cpu_seconds": process - self._before[1] - watching,
            "wall_seconds": wall - self._before[2],
            "longest_pause_seconds": self.pause_seconds,
            "longest_busy_pause_seconds": self.busy_pause_seconds,
            "peak_memory_bytes": peak_memory_bytes(),
        }
        if self._profile is not None:
            result["profile"] = self._profile.stop()
        return result

    async def _calibrate(self) -> None:
        await asyncio.sleep(0.1)
        self._num_ticks = 0
        begin = time.clock_gettime(self._clock)
        await asyncio.sleep(1.0)
        self._tick_seconds = (time.clock_gettime(self._clock) - begin) / max(1, self._num_ticks)

    async def _watch(self) -> None:
        self._num_ticks = 0
        self.pause_seconds = self.busy_pause_seconds = 0.0
        while True:
            slept, busy = time.perf_counter(), time.clock_gettime(self._clock)
            await asyncio.sleep(_TICK_SECONDS)
            self._num_ticks += 1
            self.pause_seconds = max(self.pause_seconds, time.perf_counter() - slept - _TICK_SECONDS)
            self.busy_pause_seconds = max(
                self.busy_pause_seconds, time.clock_gettime(self._clock) - busy - self._tick_seconds
            )


class _Profile:
    """Which functions the calling thread computes in, by its own CPU clock. Slows it down by about a half."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile(time.thread_time)
        self._profile.enable()

    def stop(self) -> dict[str, list[tuple[str, int, float, float]]]:
        """The 40 functions that took most by themselves, and most with all that they call: name, calls, seconds of
        their own, seconds with what they call."""
        self._profile.disable()
        rows = [
            (f"{Path(file).name}:{line}:{name}", calls, own, total)
            for (file, line, name), (_, calls, own, total, _) in pstats.Stats(self._profile).stats.items()  # type: ignore[attr-defined]
        ]
        return {
            "own": sorted(rows, key=lambda row: -row[2])[:40],
            "total": sorted(rows, key=lambda row: -row[3])[:80],
        }


def peak_memory_bytes(pid: int | None = None) -> int:
    """Highest resident memory of a process since `_forget_peak_memory`."""
    for line in Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")
