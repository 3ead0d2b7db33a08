"""Seconds and peak memory of a call, on a GPU or on the CPU, and the memory that was planned for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.entropy import peak_bytes


@dataclass(frozen=True)
class Measured:
    """One line of the result.

    Attributes:
        part: what was run.
        case: at which length.
        seconds: of one call, after one that warms up.
        extra_bytes: the most that were alive beyond what was there before.
        planned_bytes: by `verl_video_tools.launch.plan`; None where it plans none.
        note: why there are no figures, or what they depend on.
    """

    part: str
    case: str
    seconds: float | None = None
    extra_bytes: float | None = None
    planned_bytes: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured/planned bytes."""
        return self.extra_bytes / self.planned_bytes if self.extra_bytes and self.planned_bytes else None


class Meter:
    """Measures on one device.

    Args:
        device: `cuda` or `cpu`.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.lines: list[Measured] = []

    def add(self, part: str, case: str, function: Callable[[], object], planned_bytes: float | None = None) -> None:
        """Run `function` twice or three times, and note a line. Memory that runs out is a line, too."""
        try:
            function()
            seconds = self._seconds(function)
            extra_bytes = peak_bytes(function, self.device)
        except torch.OutOfMemoryError:
            self.lines.append(Measured(part, case, planned_bytes=planned_bytes, note="out of memory"))
        else:
            self.lines.append(Measured(part, case, seconds, extra_bytes, planned_bytes))
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def skip(self, part: str, why: str) -> None:
        self.lines.append(Measured(part, "", note=why))

    def _seconds(self, function: Callable[[], object]) -> float:
        self._wait()
        started = time.perf_counter()
        function()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
