"""Rounds of random inputs: in a process of their own, which may hang or crash without the round being lost."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.fuzz.surface import Surface

REPO = Path(__file__).parents[2]
HARD_LIMIT_SECONDS = 60.0
"""For one input: of CPU, or ten times as long on a busy machine."""
START_LIMIT_SECONDS = 300.0
"""For the imports, and the files that a surface makes first."""
POLL_SECONDS = 0.05
MAX_FINDS = 20
"""Finds of one kind count once; after so many kinds a round ends."""


@dataclass(frozen=True)
class Find:
    """An input that was not handled rightly."""

    surface: str
    seed: int
    number: int | str
    """The name of a past find, where it came back."""
    error: str
    place: str
    """Kind of the error and line of ours that raised it: finds with the same place are one."""

    @property
    def command(self) -> str:
        """What shows it again."""
        which = f"--number {self.number}" if isinstance(self.number, int) else f"--past {self.number}"
        return f"python -m tests.fuzz --surface {self.surface} --seed {self.seed} {which}"


def find_of(surface: Surface, seed: int, number: int | str, error: Exception) -> Find:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if str(REPO) in frame.filename]
    ours = [frame for frame in frames if "/.venv/" not in frame.filename and frame.name not in ("checked", "run")]
    place = f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else repr(error)[:200]
    return Find(surface.name, seed, number, f"{type(error).__name__}: {error}"[:2000], place)


def checked(surface: Surface, seed: int, number: int | str, case: Any) -> tuple[int, Find | None]:
    """How many inputs a case counted for, and what was found."""
    try:
        return surface.check(case), None
    except Exception as error:
        return 1, find_of(surface, seed, number, error)


def run_here(surface: Surface, seed: int, first: int, count: int) -> list[Find]:
    """Past finds, then `count` inputs from number `first` on, in this process."""
    past = [checked(surface, seed, name, case)[1] for name, case in surface.corpus().items()]
    new = [checked(surface, seed, number, surface.input(seed, number))[1] for number in range(first, first + count)]
    return [find for find in (*past, *new) if find is not None]


# ------------------------------------------------------------------------------------------------- another process


class Progress:
    """How far a process has come, in a file that both see: it is known of one that hangs or was killed, too.

    Attributes:
        numbers: of inputs that were begun.
        inputs: how many were handled.
    """

    LAYOUT = struct.Struct("<qq")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(self.LAYOUT.pack(0, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.LAYOUT.size)

    def get(self) -> tuple[int, int]:
        numbers, inputs = self.LAYOUT.unpack(self._map[:])
        return numbers, inputs

    def set(self, numbers: int, inputs: int) -> None:
        self._map[:] = self.LAYOUT.pack(numbers, inputs)


@dataclass
class Round:
    """What a round came to.

    Attributes:
        next_number: the first number that was not begun.
        seconds: from its first input on.
    """

    next_number: int
    inputs: int
    seconds: float
    finds: list[Find]


def run_apart(name: str, seed: int, first: int, *, seconds: float | None = None, count: int | None = None) -> Round:
    """Past finds, then inputs from number `first` on, for so long or so many, in processes of their own."""
    total = Round(first, 0, 0.0, [])
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        while not _is_over(total, first, seconds, count):
            left_seconds = None if seconds is None else seconds - total.seconds
            left_count = None if count is None else first + count - total.next_number
            _one_process(total, name, seed, left_seconds, left_count, Path(folder))
    return total


def _is_over(total: Round, first: int, seconds: float | None, count: int | None) -> bool:
    enough_seconds = seconds is not None and total.seconds >= seconds
    enough_inputs = count is not None and total.next_number >= first + count
    return enough_seconds or enough_inputs or len(total.finds) >= MAX_FINDS


def _one_process(total: Round, name: str, seed: int, seconds: float | None, count: int | None, folder: Path) -> None:
    """Add what one process does to `total`. It ends by itself, unless it crashes or an input takes too long."""
    work = Path(tempfile.mkdtemp(dir=folder))
    progress, log = Progress(work / "progress"), work / "finds"
    request = {"name": name, "seed": seed, "first": total.next_number, "seconds": seconds, "count": count}
    command = [sys.executable, "-m", "tests.fuzz.worker", json.dumps(request), str(work)]
    environment = {**os.environ, "VVT_FRAME_CACHE_BYTES": str(64 << 20)}
    with (work / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=REPO, env=environment, stdout=errors, stderr=errors, start_new_session=True
        )
    try:
        fault = _watch(process, progress)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    numbers, inputs = progress.get()
    total.seconds += float((work / "seconds").read_text() if (work / "seconds").exists() else 0.0)
    total.inputs += inputs
    total.finds += [Find(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    if fault is not None:
        said = (work / "errors").read_text(errors="replace")[-1500:]
        if numbers == 0:
            raise RuntimeError(f"surface {name}: {fault} before its first input\n{said}")
        total.finds.append(Find(name, seed, total.next_number + numbers - 1, f"{fault}\n{said}".strip(), fault))
    total.next_number += numbers


def _watch(process: subprocess.Popen[bytes], progress: Progress) -> str | None:
    """Wait for a process; what was wrong with it, if anything was."""
    numbers, since, cpu_then = 0, time.monotonic(), 0.0
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        now = progress.get()[0]
        if now != numbers:
            numbers, since, cpu_then = now, time.monotonic(), _cpu_seconds(process.pid)
        limit_seconds = HARD_LIMIT_SECONDS if numbers else START_LIMIT_SECONDS
        if max(_cpu_seconds(process.pid) - cpu_then, (time.monotonic() - since) / 10) > limit_seconds:
            return f"no end within {limit_seconds:g} s of CPU"
    code = process.returncode
    if code:
        return f"the process was ended by signal {-code}" if code < 0 else f"the process ended with code {code}"
    return None


def _cpu_seconds(pid: int) -> float:
    """What a process has computed so far; it may wait for others on a busy machine."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def dumped(find: Find) -> str:
    return json.dumps(asdict(find))


def unique(finds: list[Find]) -> Iterator[Find]:
    """One find of each place."""
    return iter({find.place: find for find in reversed(finds)}.values())
