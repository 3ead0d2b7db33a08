"""A file system that goes away costs the requests that meet it, by name; it makes no video shorter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import pytest

from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.core.types import FrameRequest
from verl_video_tools.video import Video, decode_frames, open_video
from verl_video_tools.video.source import Deadline, VideoSource

SUFFIXES = ["mp4", "mkv", "ts", "avi"]
"""Read from the table of an MP4 file, from packets with and without an index, and in one pass."""

FRAME = FrameRequest(96, 64, indices=(150,))


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], Path]:
    """Files and groups of pictures many times as long as what FFmpeg reads ahead."""
    return lambda suffix: write_video(
        tmp_path / f"lost.{suffix}", num_frames=200, gop_frames=60, width=192, height=128, codec_options={"crf": "5"}
    )


def lose(path: Path) -> None:
    """Whoever has the file open gets EIO from now on, as from a disk that is gone."""
    links = {int(number): Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
    open_files = [number for number, link in links.items() if os.path.exists(link) and link.resolve() == path]
    assert open_files, "nobody has the file open"
    nothing = os.open("/proc/self/mem", os.O_RDONLY)  # no page is mapped where a small file's bytes would be
    for number in open_files:
        os.dup2(nothing, number)
    os.close(nothing)


@pytest.fixture
def lose_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Lose a file once so many of its packets have been read."""

    def arrange(path: Path, num_packets: int) -> None:
        packets = VideoSource.packets

        def packets_until_lost(source: VideoSource, deadline: Deadline) -> Iterator[av.Packet]:
            for count, packet in enumerate(packets(source, deadline)):
                if count == num_packets:
                    lose(path)
                yield packet

        monkeypatch.setattr(VideoSource, "packets", packets_until_lost)

    return arrange


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_a_file_that_is_lost_while_it_is_opened_is_no_shorter_one(
    suffix: str, make: Callable[[str], Path], lose_after: Callable[..., Any]
) -> None:
    path = make(suffix)
    lose_after(path, 10)
    with pytest.raises(UnreadableVideoError, match=rf"lost\.{suffix}: reading the file failed: Input/output error"):
        Video(path)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_one_request_fails_and_the_next_opens_the_file_anew(
    suffix: str, make: Callable[[str], Path], lose_after: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(suffix)
    video = await open_video(path)
    lose_after(path, 2)
    with pytest.raises(UnreadableVideoError, match=rf"lost\.{suffix}: reading the file failed: Input/output error"):
        await decode_frames(video, FRAME, 30.0)
    assert video.closed
    monkeypatch.undo()
    for reader in (video, await open_video(path)):  # other rollouts still hold the closed one
        batch = await decode_frames(reader, FRAME, 30.0)
        assert [read_number(frame) for frame in batch.frames_THWC] == [150]
        assert not batch.corrupt.any()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_a_file_that_is_gone_fails_by_name(suffix: str, make: Callable[[str], Path]) -> None:
    path = make(suffix)
    video = await open_video(path)
    lose(path)
    path.unlink()
    with pytest.raises(UnreadableVideoError, match=rf"lost\.{suffix}: .*(No such file|Input/output error)"):
        await decode_frames(video, FRAME, 30.0)
