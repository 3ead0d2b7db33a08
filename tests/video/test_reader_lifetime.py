"""Readers close when their last holder lets go; the garbage collector, which does not see their size, would be late.

Of those that are held only a few have their file open.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.videos.files import read_number, write_video
from tests.waiting import wait_until
from verl_video_tools.core.errors import DeadlineError, FrameRangeError, UnreadableVideoError
from verl_video_tools.core.types import FrameRequest
from verl_video_tools.video import Video, decode_frames, decoding, open_video, planned_frames
from verl_video_tools.video import video as video_module
from verl_video_tools.video.decoding import OpenVideos
from verl_video_tools.video.reader import FrameReader
from verl_video_tools.video.source import NEVER, Deadline, VideoSource


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
    opened = {file.path for file in psutil.Process().open_files()}
    return {path.name for path in paths if str(path) in opened}


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
    videos = OpenVideos(capacity=1)
    monkeypatch.setattr(decoding, "_videos", lambda: videos)
    for path in paths:
        await use(await open_video(path, deadline_seconds=30))
    assert open_files(paths) == {paths[-1].name}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files whose frames are looked for, in a process that may have two files open."""
    names: list[str] = []
    open_reader = video_module.open_reader

    def note_and_open(source: VideoSource, *arguments: Any) -> FrameReader:
        names.append(source.path.name)
        return open_reader(source, *arguments)

    videos = OpenVideos(capacity=2)
    monkeypatch.setattr(decoding, "_videos", lambda: videos)
    monkeypatch.setattr(video_module, "open_reader", note_and_open)
    return names


async def numbers(video: Video, *indices: int) -> list[int]:
    # Of another size each time, so that no cache has the frames.
    request = FrameRequest(width=96 + 2 * next(SIZES), height=64, indices=indices)
    batch = await decode_frames(video, request, deadline_seconds=30)
    return [read_number(frame) for frame in batch.frames_THWC]


SIZES = itertools.count()


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
async def test_readers_that_rollouts_hold_are_bounded_too(suffix: str, tmp_path: Path, readings: list[str]) -> None:
    """Those that wait for their model let go of file and decoder; what is known of the frames stays."""
    paths = [write_video(tmp_path / f"{number}.{suffix}", num_frames=20 + number) for number in range(5)]
    videos = [await open_video(path) for path in paths]
    for _ in range(2):
        for video, path in zip(videos, paths, strict=True):
            assert await numbers(video, 3, 17) == [3, 17]
            assert len(open_files(paths)) == 2
            assert path.name in open_files(paths)
    assert [video.info.num_frames for video in videos] == [20, 21, 22, 23, 24]
    await planned_frames(videos[0], FrameRequest(width=96, height=64, indices=(3,)), deadline_seconds=30)
    assert paths[0].name not in open_files(paths), "its times were known already"
    assert sorted(readings) == [path.name for path in paths]
    del videos, video
    decoding._videos()._recent.clear()
    wait_until(lambda: not open_files(paths), "the end of the readers that nobody holds", 5.0)


async def test_many_rollouts_at_once_all_get_their_frames(tmp_path: Path, readings: list[str]) -> None:
    paths = [write_video(tmp_path / f"{number}.mp4", num_frames=30) for number in range(8)]

    async def roll_out(path: Path) -> list[list[int]]:
        video = await open_video(path, deadline_seconds=30)
        return [await numbers(video, index, 29) for index in (25, 0, 13)]

    for found in await asyncio.gather(*(roll_out(path) for path in paths * 3)):
        assert found == [[25, 29], [0, 29], [13, 29]]
    assert len(open_files(paths)) <= 2


async def test_a_reader_at_work_keeps_its_file(paths: list[Path], readings: list[str]) -> None:
    first, *others = [await open_video(path) for path in paths]
    begun, release = threading.Event(), threading.Event()

    def work(reader: Video, _: Deadline) -> list[int]:
        reader.frames_at([0.0])
        begun.set()
        release.wait(30)
        assert reader.is_open
        return reader.frames_at([0.1]).indices.tolist()

    working = asyncio.create_task(decoding._on_reader(first, work, 30.0, "wait"))
    await asyncio.to_thread(begun.wait, 30)
    for video in others:
        assert await numbers(video, 2) == [2]
        assert len(open_files(paths)) == 2 and first.is_open
    release.set()
    assert await working == [3]


async def test_a_file_that_changed_while_nobody_had_it_open(paths: list[Path], readings: list[str]) -> None:
    videos = [await open_video(path) for path in paths]
    assert not videos[0].is_open
    write_video(paths[0], num_frames=9)
    with pytest.raises(UnreadableVideoError, match=r"0\.mp4: the file was changed while it was in use"):
        await numbers(videos[0], 3)
    assert (await open_video(paths[0])).info.num_frames == 9
    assert await numbers(videos[0], 8) == [8], "whoever asks again gets the file as it is now"


async def test_the_result_of_a_thread_lives_no_longer_than_its_holders() -> None:
    class Result:
        pass

    result = await decoding._decoding().run(Result, NEVER)
    alive = weakref.ref(result)
    del result
    await asyncio.sleep(0)  # the step of the event loop that brought the result still holds it
    wait_until(lambda: alive() is None, "the end of the result", 5.0)
