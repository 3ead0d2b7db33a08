"""A process that reads frames in one way and says what it cost; `Worker` is its other end.

A process for each way, so that no library's idle threads are charged to another, and one that hangs can be killed. They
talk in lines of JSON. The frames' numbers are read as part of the work: for every way alike, some 20 microseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.video.long_files import STRIP
from benchmarks.video.readers import READERS, SharedReader
from benchmarks.video.requests import Request
from tests.videos.files import BLOCKS

BARCODES = {"strip": STRIP, "blocks": BLOCKS}
SHARED = "ours_shared"


class MissingReader(Exception):
    """The package behind a reader is not installed or does not load."""


class WorkFailed(Exception):
    """A reader raised; `kind` is the name of its exception's class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Work:
    """What reading cost and what was seen; lists have one entry per rollout and, in it, one per request.

    Attributes:
        cpu_seconds: CPU time of the process, all its threads and its children.
        numbers: the number in each frame.
        timestamps_seconds: presentation times that came with the frames, where the reader gives any.
        corrupt: whether a frame stands in for a damaged one.
        rss_bytes: resident memory after the work.
    """

    cpu_seconds: float
    wall_seconds: float
    numbers: list[list[list[int]]]
    timestamps_seconds: list[list[list[float]]]
    corrupt: list[list[list[bool]]]
    rss_bytes: int


class Worker:
    """A running process for one reader.

    Args:
        reader: a name of `READERS`, or `SHARED`.
        environment: variables beside those of this process.

    Raises:
        MissingReader: its package is missing; the message names it.
    """

    def __init__(self, reader: str, environment: Mapping[str, str] | None = None) -> None:
        self.reader = reader
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.video.worker", reader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(environment or {})},
        )
        answer = self._answer(time_limit_seconds=120.0)
        if "missing" in answer:
            self.close()
            raise MissingReader(answer["missing"])
        self.version: str = answer["version"]

    def run(
        self,
        rollouts: Sequence[Sequence[Request]],
        barcode: str = "strip",
        quarter_turns: int = 0,
        time_limit_seconds: float = 300.0,
    ) -> Work:
        """Do the requests and wait for them.

        Raises:
            WorkFailed: the reader raised, or did not end within the time limit; then its process was killed.
        """
        self.start(rollouts, barcode, quarter_turns)
        return self.finish(time_limit_seconds)

    def start(self, rollouts: Sequence[Sequence[Request]], barcode: str = "strip", quarter_turns: int = 0) -> None:
        """Begin with requests; `finish` waits for them."""
        task = {
            "rollouts": [[request.to_json() for request in requests] for requests in rollouts],
            "barcode": barcode,
            "quarter_turns": quarter_turns,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")

    def finish(self, time_limit_seconds: float) -> Work:
        answer = self._answer(time_limit_seconds)
        if "error" in answer:
            raise WorkFailed(answer["error"], answer["message"])
        return Work(**answer)

    def _answer(self, time_limit_seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], time_limit_seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.close()
            raise WorkFailed("Hang" if not ready else "Crash", f"{self.reader}: no answer in {time_limit_seconds} s")
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ------------------------------------------------------------------------------------------------ inside the process


def cpu_seconds() -> float:
    """CPU time so far of this process, all its threads, and its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class _Process:
    def __init__(self, name: str) -> None:
        self._reader = SharedReader() if name == SHARED else READERS[name]()
        self.version = self._reader.version
        self._loop = asyncio.new_event_loop()

    def run(self, rollouts: list[list[Request]], barcode: str, quarter_turns: int) -> dict[str, Any]:
        code = BARCODES[barcode]

        def numbers(frames_THWC: Any) -> list[int]:
            return code.read(np.rot90(frames_THWC, -quarter_turns, axes=(1, 2)))

        def take(batch: Any) -> tuple[list[int], list[float], list[bool]]:
            return numbers(batch.frames_THWC), batch.timestamps_seconds.tolist(), batch.corrupt.tolist()

        cpu_before, wall_before = cpu_seconds(), time.perf_counter()
        if isinstance(self._reader, SharedReader):
            seen = self._loop.run_until_complete(self._reader.read_rollouts(rollouts, take))
        else:
            read = self._reader.read
            seen = [[(numbers(read(request)), [], []) for request in requests] for requests in rollouts]
        cost = (cpu_seconds() - cpu_before, time.perf_counter() - wall_before)
        columns = [[[request[part] for request in requests] for requests in seen] for part in range(3)]
        return {
            "cpu_seconds": cost[0],
            "wall_seconds": cost[1],
            "numbers": columns[0],
            "timestamps_seconds": columns[1],
            "corrupt": columns[2],
            "rss_bytes": rss_bytes(),
        }


def main(name: str) -> None:
    """Answer tasks on stdin, one line each, until it ends. What libraries print to stdout goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(data: dict[str, Any]) -> None:
        answers.write(json.dumps(data) + "\n")

    try:
        process = _Process(name)
    except (ImportError, OSError, RuntimeError) as error:  # a library of its own may be missing, too
        answer({"missing": f"{name}: {str(error).splitlines()[0]}"})
        return
    answer({"version": process.version})
    for line in sys.stdin:
        task = json.loads(line)
        rollouts = [[Request.from_json(data) for data in requests] for requests in task["rollouts"]]
        try:
            answer(process.run(rollouts, task["barcode"], task["quarter_turns"]))
        except Exception as error:
            answer({"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    main(sys.argv[1])
