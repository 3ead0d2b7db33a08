"""Readers close when their last holder lets go; the garbage collector, which does not see their size, would be late."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.videos.files import write_video
from verl_video_tools.core.errors import DeadlineError, FrameRangeError
from verl_video_tools.core.types import FrameRequest
from verl_video_tools.video import Video, decode_frames, open_video, planned_frames
from verl_video_tools.video.decode_threads import DecodePool, result_of
from verl_video_tools.video.pool import ReaderCache


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [write_video(tmp_path / f"{number}.mp4", num_frames=6) for number in range(3)]


def open_files(paths: list[Path]) -> set[str]:
    return {Path(file.path).name for file in psutil.Process().open_files()} & {path.name for path in paths}


async def nothing(video: Video) -> None:
    pass


async def frames(video: Video) -> None:
    request = FrameRequest(width=48, height=32, indices=(1, 3))
    await planned_frames(video, request, deadline_seconds=30)
    await decode_frames(video, request, deadline_seconds=30)


async def frames_that_are_not_there(video: Video) -> None:
    with pytest.raises(FrameRangeError):
        await decode_frames(video, FrameRequest(width=48, height=32, indices=(99,)), deadline_seconds=30)


async def a_deadline_that_is_over(video: Video) -> None:
    with pytest.raises(DeadlineError):
        await decode_frames(video, FrameRequest(width=48, height=32, indices=(1,)), deadline_seconds=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("use", [nothing, frames, frames_that_are_not_there, a_deadline_that_is_over])
async def test_a_reader_beyond_the_capacity_closes(
    paths: list[Path], use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = ReaderCache(DecodePool(1), capacity=1)
    monkeypatch.setattr("verl_video_tools.video.pool._reader_cache", lambda: shelf)
    for path in paths:
        await use(await open_video(path, deadline_seconds=30))
    assert open_files(paths) == {paths[-1].name}


async def test_the_result_of_a_thread_lives_no_longer_than_its_holders() -> None:
    class Result:
        pass

    pool = DecodePool(1)
    task = pool.submit(Result)
    result = await result_of(task, 5, "a result")
    alive = weakref.ref(result)
    del task, result
    await result_of(pool.submit(int), 5, "another")  # the thread has let go, too
    assert alive() is None
