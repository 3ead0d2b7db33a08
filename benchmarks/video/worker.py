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
from typing import Any

from benchmarks.video.long_files import STRIP
from benchmarks.video.readers import READERS, SharedReader
from benchmarks.video.requests import Request

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
    """What reading cost and what was seen.

    Attributes:
        cpu_seconds: CPU time of the process, all its threads and its children.
        numbers: the number in each frame, by rollout and request.
    """

    cpu_seconds: float
    wall_seconds: float
    numbers: list[list[list[int]]]


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

    def run(self, rollouts: Sequence[Sequence[Request]], time_limit_seconds: float = 300.0) -> Work:
        """Do the requests and wait for them.

        Raises:
            WorkFailed: the reader raised, or did not end within the time limit; then its process was killed.
        """
        task = [[request.to_json() for request in requests] for requests in rollouts]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
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


class _Process:
    def __init__(self, name: str) -> None:
        self._reader = SharedReader() if name == SHARED else READERS[name]()
        self.version = self._reader.version
        self._loop = asyncio.new_event_loop()

    def run(self, rollouts: list[list[Request]]) -> dict[str, Any]:
        cpu_before, wall_before = cpu_seconds(), time.perf_counter()
        if isinstance(self._reader, SharedReader):
            seen = self._loop.run_until_complete(
                self._reader.read_rollouts(rollouts, lambda batch: STRIP.read(batch.frames_THWC))
            )
        else:
            read = self._reader.read
            seen = [[STRIP.read(read(request)) for request in requests] for requests in rollouts]
        return {
            "cpu_seconds": cpu_seconds() - cpu_before,
            "wall_seconds": time.perf_counter() - wall_before,
            "numbers": seen,
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
        rollouts = [[Request.from_json(data) for data in requests] for requests in json.loads(line)]
        try:
            answer(process.run(rollouts))
        except Exception as error:
            answer({"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    main(sys.argv[1])
