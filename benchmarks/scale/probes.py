"""What a process costs while it is measured: CPU seconds, its event loop's share and longest pause, memory."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import Counter
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
        self._profile = _Profile(threading.get_ident()) if profile else None
        self._before = (time.clock_gettime(self._clock), time.process_time(), time.perf_counter())

    async def stop(self) -> dict[str, Any]:
        loop, process, wall = time.clock_gettime(self._clock), time.process_time(), time.perf_counter()
        self._watcher.cancel()
        watching = self._num_ticks * self._tick_seconds
        result = {
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
    """Samples of one thread while it computes: which functions it was in, innermost ones of each file apart."""

    def __init__(self, thread_id: int) -> None:
        self._thread_id = thread_id
        self._counts: Counter[str] = Counter()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> list[tuple[str, int]]:
        self._done.set()
        self._thread.join()
        return self._counts.most_common(80)

    def _sample(self) -> None:
        while not self._done.wait(0.003):
            frame = sys._current_frames().get(self._thread_id)
            names = []
            while frame is not None:
                code = frame.f_code
                names.append(f"{Path(code.co_filename).name}:{code.co_name}")
                frame = frame.f_back
            if names and names[0] not in ("selectors.py:select", "threading.py:run"):
                self._counts[" < ".join(names[:14])] += 1


def peak_memory_bytes(pid: int | None = None) -> int:
    """Highest resident memory of a process since `_forget_peak_memory`."""
    for line in Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")
