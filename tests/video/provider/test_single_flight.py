"""A frame is decoded once per node, whatever happens to the process that decodes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.video.provider.providing import FRAME_BYTES, SPAWN, by_index, numbers, provider_of, within
from verl_video_tools.video import Video
from verl_video_tools.video.file_locks import StripedLocks
from verl_video_tools.video.provider import decoder_version


def _request_much(
    folder: Path, path: Path, capacity_bytes: int, seed: int, num_requests: int, pipe: Connection
) -> None:
    """Two threads ask for random frames; sends how many were wrong, hits and misses."""
    provider = provider_of(folder, capacity_bytes)
    with ExitStack() as stack:
        videos = [stack.enter_context(Video(path)) for _ in range(2)]
        pipe.send("ready")
        pipe.recv()

        def work(thread: int) -> int:
            random = np.random.default_rng([seed, thread])
            num_wrong = 0
            for _ in range(num_requests):
                indices = random.integers(0, 300, 8).tolist()
                (batch,) = provider.provide(videos[thread], [by_index(*indices)], within(60))
                num_wrong += sum(a != b for a, b in zip(numbers(batch), indices, strict=True))
                num_wrong += batch.indices.tolist() != indices
            return num_wrong

        with ThreadPoolExecutor(2) as threads:
            num_wrong = sum(threads.map(work, range(2)))
    pipe.send((num_wrong, provider.stats().hits, provider.stats().misses))


def run_requesters(folder: Path, path: Path, capacity_bytes: int, seeds: Sequence[int], num_requests: int) -> list[Any]:
    pipes, processes = [], []
    for seed in seeds:
        ours, theirs = SPAWN.Pipe()
        arguments = (folder, path, capacity_bytes, seed, num_requests, theirs)
        process = SPAWN.Process(target=_request_much, args=arguments)
        process.start()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        assert pipe.poll(60) and pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")
    results = []
    for pipe in pipes:
        assert pipe.poll(100)
        results.append(pipe.recv())
    for process in processes:
        process.join(30)
    return results


@pytest.mark.slow
def test_four_requesters_in_two_processes_get_no_wrong_frame(path: Path, tmp_path: Path) -> None:
    """The cache holds a sixth of the video, so frames come, go and come again all the time."""
    results = run_requesters(tmp_path, path, 50 * FRAME_BYTES, seeds=range(2), num_requests=40)
    assert [num_wrong for num_wrong, _, _ in results] == [0, 0]
    assert sum(hits for _, hits, _ in results) > 100
    assert sum(hits + misses for _, hits, misses in results) == 2 * 2 * 40 * 8


def test_a_frame_is_decoded_once_per_node(path: Path, tmp_path: Path) -> None:
    """Both processes ask for the same at the same time."""
    results = run_requesters(tmp_path, path, 64 << 20, seeds=(0, 0), num_requests=5)
    asked = set()
    num_repeated = 0
    for thread in range(2):
        random = np.random.default_rng([0, thread])
        for _ in range(5):
            indices = random.integers(0, 300, 8).tolist()
            asked |= set(indices)
            num_repeated += len(indices) - len(set(indices))
    num_misses = sum(misses for _, _, misses in results)
    assert len(asked) <= num_misses <= len(asked) + num_repeated  # a miss asked twice in one request counts twice


def _hold_lock(folder: Path, name: str, pipe: Connection) -> None:
    with StripedLocks(folder / "locks").try_hold(name) as held:
        pipe.send(held)
        pipe.recv()


@pytest.fixture
def holder(video: Video, tmp_path: Path) -> Iterator[Any]:
    """A process that holds the lock of frame 100's group, as if it were decoding it."""
    ours, theirs = SPAWN.Pipe()
    (group,) = video.groups_of([100])
    process = SPAWN.Process(
        target=_hold_lock,
        args=(tmp_path, f"{video.identity.digest}-{video.backend}-{decoder_version()}/{group}", theirs),
    )
    process.start()
    assert ours.poll(60) and ours.recv() is True
    yield process
    process.kill()
    process.join(30)


def test_a_process_killed_while_it_holds_a_group(holder: Any, video: Video, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(provider_of(tmp_path).provide, video, [by_index(20, 100)], within(240.0))
        time.sleep(0.3)
        assert not future.done()  # it waits for the other
        (free,) = provider_of(tmp_path).provide(video, [by_index(20)], within(60.0))
        assert free.num_cached == 1  # but took what was free
        holder.kill()
        (batch,) = future.result(timeout=60.0)  # far less than its patience
    assert numbers(batch) == [20, 100]


@pytest.mark.slow
def test_a_process_that_hangs_while_it_holds_a_group(holder: Any, video: Video, tmp_path: Path) -> None:
    start = time.monotonic()
    (batch,) = provider_of(tmp_path).provide(video, [by_index(100)], within(4.0))  # or it raises
    assert numbers(batch) == [100]
    assert time.monotonic() - start > 1.9, "half of the time goes into waiting"
    assert holder.is_alive()


def test_a_failed_decode_gives_the_group_free(video: Video, tmp_path: Path) -> None:
    provider = provider_of(tmp_path)
    real_decode: Callable[..., Any] = video.decode_many

    def fail(*args: Any) -> Any:
        video.decode_many = real_decode
        raise RuntimeError("once")

    video.decode_many = fail
    with pytest.raises(RuntimeError, match="once"):
        provider.provide(video, [by_index(5)])
    start = time.monotonic()
    assert numbers(provider.provide(video, [by_index(5)], within(120.0))[0]) == [5]
    assert time.monotonic() - start < 60, "one that waits for the lock takes half of the time"


def test_threads_of_one_process_wait_for_each_other(path: Path, tmp_path: Path) -> None:
    provider, barrier = provider_of(tmp_path), threading.Barrier(4)

    def work(_: int) -> int:
        with Video(path) as video:
            barrier.wait()
            return provider.provide(video, [by_index(*range(0, 300, 30))], within(60.0))[0].num_cached

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 3 * 10
