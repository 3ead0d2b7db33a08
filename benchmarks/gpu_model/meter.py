"""Seconds and peak memory of a call, on a GPU or on the CPU, and the memory that was planned for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
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
        tokens: that a call processes.
        note: why there are no figures, or what they depend on.
    """

    part: str
    case: str
    seconds: float | None = None
    extra_bytes: float | None = None
    planned_bytes: float | None = None
    tokens: int | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured/planned bytes."""
        return self.extra_bytes / self.planned_bytes if self.extra_bytes and self.planned_bytes else None

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.tokens and self.seconds else None


class Meter:
    """Measures on one device.

    Args:
        device: `cuda` or `cpu`.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.lines: list[Measured] = []

    def add(
        self,
        part: str,
        case: str,
        function: Callable[[], object],
        planned_bytes: float | None = None,
        tokens: int | None = None,
        note: str = "",
    ) -> None:
        """Run `function` twice or three times, and note a line. Memory that runs out is a line, too."""
        try:
            function()
            seconds = self._seconds(function)
            extra_bytes = peak_bytes(function, self.device)
        except torch.OutOfMemoryError:
            self.lines.append(Measured(part, case, planned_bytes=planned_bytes, note="out of memory"))
        else:
            self.lines.append(Measured(part, case, seconds, extra_bytes, planned_bytes, tokens, note))
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


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def section(title: str, lines: Iterable[Measured], constants: Iterable[Sequence[str]] = ()) -> str:
    """A section of a page: the lines with their ratio of measured to planned bytes, and what follows for the plan.

    Args:
        constants: of `launch.plan`, each with its name, its value, and the one that was measured.
    """

    def cell(value: float | None, scale: float = 1.0) -> str:
        return "" if value is None else f"{value / scale:.3g}"

    head = ("part", "case", "s", "tokens/s", "GB", "planned", "ratio", "note")
    rows = [
        (
            line.part,
            line.case,
            cell(line.seconds),
            cell(line.tokens_per_second),
            cell(line.extra_bytes, 1e9),
            cell(line.planned_bytes, 1e9),
            cell(line.ratio),
            line.note,
        )
        for line in lines
    ]
    parts = [f"## {title}", markdown(head, rows)]
    if constants := list(constants):
        parts.append(markdown(("constant of the plan", "now", "measured"), constants))
    return "\n\n".join(parts)
