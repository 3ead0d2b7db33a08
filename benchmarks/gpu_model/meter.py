"""Seconds and peak memory of a call, on a GPU or on the CPU, and what was planned for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.entropy import peak_bytes


@dataclass(frozen=True)
class Planned:
    """By `verl_video_tools.planner`; None where it plans none. `extra_bytes`: beyond weights and gradients."""

    seconds: float | None = None
    extra_bytes: float | None = None


@dataclass(frozen=True)
class Measured:
    """One line of the result.

    Attributes:
        part: what was run.
        case: at which length.
        seconds: of one call, after one that warms up.
        extra_bytes: the most that were alive beyond what was there before.
        note: why there are no figures, or what they depend on.
    """

    part: str
    case: str
    seconds: float | None
    extra_bytes: float | None
    planned: Planned
    note: str = ""

    @property
    def ratios(self) -> tuple[float | None, float | None]:
        """Measured/planned, of seconds and of bytes."""
        pairs = ((self.seconds, self.planned.seconds), (self.extra_bytes, self.planned.extra_bytes))
        seconds, extra_bytes = (found / planned if found and planned else None for found, planned in pairs)
        return seconds, extra_bytes


class Meter:
    """Measures on one device.

    Args:
        device: `cuda` or `cpu`.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.lines: list[Measured] = []

    def add(self, part: str, case: str, planned: Planned, function: Callable[[], object]) -> None:
        """Run `function` twice or three times, and note a line. Memory that runs out is a line, too."""
        try:
            function()
            seconds = self._seconds(function)
            extra_bytes = peak_bytes(function, self.device)
        except torch.OutOfMemoryError:
            self.lines.append(Measured(part, case, None, None, planned, "out of memory"))
        else:
            self.lines.append(Measured(part, case, seconds, extra_bytes, planned))
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def skip(self, part: str, why: str) -> None:
        self.lines.append(Measured(part, "", None, None, Planned(), why))

    def _seconds(self, function: Callable[[], object]) -> float:
        self._wait()
        started = time.perf_counter()
        function()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
