"""Settings of the frame provider, read once per process from environment variables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from verl_video_tools.core.errors import UsageError

Value = TypeVar("Value")

GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """How this process decodes and caches. Variables, not options, since every worker process of a run reads them."""

    decode_threads: int
    """`VVT_DECODE_THREADS`: threads that decode at the same time; default: the CPUs that this process may use."""
    cache_name: str
    """`VVT_FRAME_CACHE`: processes of one user on one node that give the same name share frames."""
    cache_bytes: int | None
    """`VVT_FRAME_CACHE_BYTES`: capacity in shared memory, 0 for no cache; None: `provider.default_capacity_bytes`."""
    disk_folder: Path | None
    """`VVT_FRAME_CACHE_DISK`: folder of a second cache that outlives the run; None for none."""
    disk_bytes: int
    """`VVT_FRAME_CACHE_DISK_BYTES`: its capacity."""
    time_grid_seconds: float
    """`VVT_TIME_GRID_SECONDS`: requested times move to the nearest multiple; 0 leaves them alone."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> VideoSettings:
        """Read the variables; one that is empty counts as unset.

        Raises:
            UsageError: a value makes no sense; names the variable.
        """

        def read(name: str, parse: Callable[[str], Value | None], default: Value, expected: str) -> Value:
            text = environment.get(name, "")
            if not text:
                return default
            try:
                value = parse(text)
            except ValueError:
                value = None
            if value is None:
                raise UsageError(f"environment variable {name} must be {expected}, got {text!r}")
            return value

        num_cpus = len(os.sched_getaffinity(0))  # not the machine's: a job may be allowed a few of them
        disk_folder = environment.get("VVT_FRAME_CACHE_DISK")
        return cls(
            decode_threads=read("VVT_DECODE_THREADS", _positive, num_cpus, "a whole number above 0"),
            cache_name=read("VVT_FRAME_CACHE", _name, "default", "letters, digits, '.', '_' and '-'"),
            cache_bytes=read("VVT_FRAME_CACHE_BYTES", _whole, None, "a number of bytes, 0 for no cache"),
            disk_folder=Path(disk_folder).expanduser() if disk_folder else None,
            disk_bytes=read("VVT_FRAME_CACHE_DISK_BYTES", _positive, 16 * GIBIBYTE, "a number of bytes above 0"),
            time_grid_seconds=read("VVT_TIME_GRID_SECONDS", _seconds, 0.0, "a number of seconds, 0 for no grid"),
        )


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _positive(text: str) -> int | None:
    return _whole(text) or None


def _name(text: str) -> str | None:
    return text if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text) else None


def _seconds(text: str) -> float | None:
    seconds = float(text)
    return seconds if 0 <= seconds < math.inf else None
