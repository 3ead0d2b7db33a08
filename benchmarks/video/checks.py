"""Whether frames are right under load, bad files fail cleanly, and memory stays flat."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.video.requests import Request
from benchmarks.video.worker import SHARED, Worker, WorkFailed
from tests.videos.files import sequential_numbers
from tests.videos.kinds import DAMAGED_WRITERS, KNOWN_SHARE, QUARTER_TURNS, WHOLE, WRITERS, unreadable_files

NUM_PROCESSES = 4
REQUESTERS_PER_PROCESS = 2


@dataclass(frozen=True)
class TruthfulFile:
    """A decodable file and what decoding it from start to end shows.

    Attributes:
        numbers: the number in each frame, in presentation order; of a damaged file, those before it was damaged.
        times_seconds: when each is shown, from the first.
        is_damaged: then a frame counts as right, too, if it is flagged and is the one whose time comes with it.
    """

    path: Path
    numbers: Sequence[int]
    times_seconds: Sequence[float]
    is_damaged: bool = False

    def index_at(self, seconds: float) -> int:
        return bisect_right(self.times_seconds, seconds) - 1


def make_files(folder: Path, names: Iterable[str] | None = None) -> list[TruthfulFile]:
    """The decodable files, written where they do not lie there yet; all of them, or those named."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in sorted({*WRITERS, *DAMAGED_WRITERS} if names is None else names):
        path = folder / name
        if name in DAMAGED_WRITERS:
            if not path.exists():
                DAMAGED_WRITERS[name](path)
            sound = path.with_name(WHOLE + name)
        else:
            if not path.exists():
                WRITERS[name](path)
            sound = path
        numbers, times = sequential_numbers(sound)
        files.append(TruthfulFile(path, numbers, [float(time) for time in times], is_damaged=name in DAMAGED_WRITERS))
    return files


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Frames asked of one file, those that were right, and what went wrong first."""

    asked: int
    right: int
    first_wrong: str | None = None


def check_accuracy(
    reader: str, files: Sequence[TruthfulFile], requests_per_file: int, seed: int, environment: Mapping[str, str]
) -> dict[str, Accuracy]:
    """Ask for random times from 8 requesters in 4 processes at once.

    Each requester goes through all files in an order of its own; a request is a random window or scattered times.
    """
    rng = np.random.default_rng(seed)
    results: dict[str, Accuracy] = {}
    workers = [Worker(reader, environment) for _ in range(NUM_PROCESSES)]
    try:
        for turns in sorted({QUARTER_TURNS.get(file.path.name, 0) for file in files}):
            turned = [file for file in files if QUARTER_TURNS.get(file.path.name, 0) == turns]
            by_path = {str(file.path): file for file in turned}
            plans = []
            for worker in workers:
                plan = [_random_requests(turned, requests_per_file, rng) for _ in range(REQUESTERS_PER_PROCESS)]
                worker.start(plan, barcode="blocks", quarter_turns=turns)
                plans.append(plan)
            for worker, plan in zip(workers, plans, strict=True):
                work = worker.finish(time_limit_seconds=600.0)
                seen_by_requester = zip(plan, work.numbers, work.timestamps_seconds, work.corrupt, strict=True)
                for requests, numbers, times, corrupt in seen_by_requester:
                    for request, found, shown_at, flags in zip(requests, numbers, times, corrupt, strict=True):
                        _count(results, by_path[request.path], request, found, shown_at, flags)
    finally:
        for worker in workers:
            worker.close()
    return results


def _random_requests(files: Sequence[TruthfulFile], per_file: int, rng: np.random.Generator) -> list[Request]:
    requests = []
    for file in files:
        for _ in range(per_file):
            end = file.times_seconds[-1] * (KNOWN_SHARE.get(file.path.name, 0.4) if file.is_damaged else 1.0)
            if rng.random() < 0.5:
                first = rng.uniform(0, end)
                seconds = np.minimum(first + np.arange(4) * 0.1, end)
            else:
                seconds = rng.uniform(0, end, 4)
            times = tuple(float(time) for time in seconds)
            requests.append(Request(str(file.path), times, tuple(file.index_at(time) for time in times)))
    return [requests[place] for place in rng.permutation(len(requests))]


def _count(
    results: dict[str, Accuracy],
    file: TruthfulFile,
    request: Request,
    numbers: Sequence[int],
    times: Sequence[float],
    corrupt: Sequence[bool],
) -> None:
    before = results.get(file.path.name, Accuracy(0, 0))
    right, first_wrong = before.right, before.first_wrong
    for number, index, asked, time_seconds, stands_in in zip(
        numbers, request.indices, request.seconds, times, corrupt, strict=True
    ):
        shown = file.index_at(time_seconds + 1e-9) if stands_in and file.is_damaged else index
        if number == file.numbers[shown] and (stands_in is False or file.is_damaged):
            right += 1
        elif first_wrong is None:
            first_wrong = f"at {asked} s: frame {number}, not {file.numbers[index]}"
    results[file.path.name] = Accuracy(before.asked + len(numbers), right, first_wrong)


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a file that is no video was answered."""

    error: str
    seconds: float


def check_bad_files(folder: Path, environment: Mapping[str, str]) -> dict[str, Refusal]:
    """Ask each file that is no video for its first frame."""
    folder.mkdir(parents=True, exist_ok=True)
    refusals = {}
    with Worker(SHARED, environment) as worker:
        for kind, path in unreadable_files(folder).items():
            start = time.monotonic()
            try:
                worker.run([[Request(str(path), (0.0,), (0,))]], time_limit_seconds=30.0)
                error = "none"
            except WorkFailed as failure:
                error = failure.kind
            refusals[kind] = Refusal(error, time.monotonic() - start)
    return refusals


def check_memory(
    files: Sequence[TruthfulFile], num_requests: int, num_samples: int, environment: Mapping[str, str]
) -> list[int]:
    """Resident bytes after each of `num_samples` equal parts of the requests, of two frames each, in one process."""
    rng = np.random.default_rng(1)
    sound = [file for file in files if not file.is_damaged]
    samples = []
    with Worker(SHARED, environment) as worker:
        for _ in range(num_samples):
            requests = []
            for _ in range(num_requests // num_samples):
                file = sound[rng.integers(len(sound))]
                seconds = tuple(rng.uniform(0, file.times_seconds[-1], 2).tolist())
                requests.append(Request(str(file.path), seconds, (0, 0)))
            samples.append(worker.run([requests], barcode="blocks", time_limit_seconds=600.0).rss_bytes)
    return samples
