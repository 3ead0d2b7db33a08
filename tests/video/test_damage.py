"""Files that are cut, damaged, empty or no videos at all."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

import av
import numpy as np
import pytest

from tests.videos.boxes import empty_a_sample, repeat_a_time
from tests.videos.compare import compare
from tests.videos.files import read_number, write_video
from tests.videos.kinds import scramble, unreadable_files
from tests.videos.reference import Reference
from verl_video_tools.core.errors import UnreadableVideoError, VideoError, VideoNotFoundError
from verl_video_tools.core.types import FrameRequest
from verl_video_tools.video import Video
from verl_video_tools.video.source import VideoSource


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames in groups of 30, the index before the frames."""
    path = tmp_path_factory.mktemp("damage") / "whole.mp4"
    return write_video(path, num_frames=300, gop_frames=30, container_options={"movflags": "faststart"})


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_truncated_file_ends_where_it_was_cut(suffix: str, tmp_path: Path) -> None:
    options = {"movflags": "faststart"} if suffix == ".mp4" else {}
    path = write_video(tmp_path / f"cut{suffix}", num_frames=300, gop_frames=30, container_options=options)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    with Video(path) as video:
        assert 150 <= video.info.num_frames <= 200
        # x264 spends bytes a little differently on every processor, so the cut falls at another packet: up to two
        # B-frames before the last frame may be missing, and FFmpeg's estimate for MPEG-TS may add two frames to that.
        missing_frames = video.info.duration_seconds * 30 - video.info.num_frames
        assert -0.1 <= missing_frames <= 4.1
        batch = video.frames_at_indices(range(video.info.num_frames))
        numbers = [read_number(frame) for frame in batch.frames_THWC]
        assert numbers[:-2] == list(range(video.info.num_frames - 2))  # the cut may run through the last packet
        for number, index, corrupt in zip(numbers, batch.indices, batch.corrupt, strict=True):
            # A P-frame may be whole while up to two B-frames, stored after it and shown before it, are cut off.
            assert index <= number <= index + 2 or corrupt


def test_frames_that_cannot_be_decoded_are_replaced_by_the_nearest(whole: Path, tmp_path: Path) -> None:
    with Video(scramble(whole, tmp_path / "damaged.mp4", 0.45, 0.65)) as video:
        assert video.info.num_frames == 300
        batch = video.frames_at_indices(range(300))
        numbers = [read_number(frame) for frame in batch.frames_THWC]
        sound = [index for index in range(300) if not batch.corrupt[index]]
        damaged = [index for index in range(300) if batch.corrupt[index]]
        assert 30 <= len(damaged) <= 120 and damaged == list(range(damaged[0], damaged[-1] + 1))
        assert [numbers[index] for index in sound] == sound
        before, after = damaged[0] - 1, damaged[-1] + 1
        for index in damaged:
            nearest = before if index - before <= after - index else after
            assert numbers[index] == nearest
            assert batch.indices[index] == nearest
            assert batch.timestamps_seconds[index] == nearest / 30
        middle = damaged[len(damaged) // 2]
        single = video.frames_at([middle / 30], height=32, width=48)
        assert single.corrupt.tolist() == [True]
        assert single.indices.tolist() == [batch.indices[middle]]


@pytest.mark.parametrize("suffix", [".mkv", ".ts"])
def test_damage_in_the_middle_leaves_both_ends_readable(suffix: str, tmp_path: Path) -> None:
    whole = write_video(tmp_path / f"whole{suffix}", num_frames=300, gop_frames=30)
    with Video(scramble(whole, tmp_path / f"damaged{suffix}", 0.5, 0.6)) as video:
        assert video.info.duration_seconds == pytest.approx(10.0, abs=0.05)
        early = video.frames_at([0.0, 1.0, 3.01])
        assert [read_number(frame) for frame in early.frames_THWC] == [0, 30, 90]
        late = video.frames_at([9.51, 10.0])
        assert [read_number(frame) for frame in late.frames_THWC] == [285, 299]
        assert not early.corrupt.any() and not late.corrupt.any()
        assert len(video.frames_at(np.linspace(0, 10, 41).tolist())) == 41


def test_a_stream_that_begins_late_in_the_file_does_no_harm(tmp_path: Path) -> None:
    # FFmpeg looks for streams in the first 7 seconds, and again in the last 250 KB: sound is in neither.
    parts = [
        write_video(tmp_path / "silent.ts", num_frames=50, fps=5),
        write_video(tmp_path / "loud.ts", num_frames=10, fps=5, start_seconds=10, audio_seconds=1.0),
        write_video(tmp_path / "end.ts", num_frames=200, fps=5, start_seconds=12, codec_options={"crf": "1"}),
    ]
    path = tmp_path / "late.ts"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    with av.open(str(path)) as container:
        assert len(container.streams) == 1, "the sound was found at once, so this file tests nothing"
    with Video(path) as video:
        assert video.info.num_frames == 260
        batch = video.frames_at_indices([0, 49, 50, 59, 60, 259])
        assert [read_number(frame) for frame in batch.frames_THWC] == [0, 49, 0, 9, 0, 199]
        assert not batch.corrupt.any()


def damage_a_time(whole: Path, share: float, offset: int) -> Path:
    """A copy of an MP4 file in which one frame, given as a share of all, has another offset from its decode time."""
    data = bytearray(whole.read_bytes())
    start = data.index(b"ctts") + 12  # entries of 8 bytes: number of frames, their offset
    num_entries = int.from_bytes(data[start - 4 : start], "big")
    damaged = start + 8 * round(num_entries * share)
    data[damaged + 4 : damaged + 8] = offset.to_bytes(4, "big")
    path = whole.with_name("damaged.mp4")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("offset", [0xC900_0000, 0x0010_0000, 432_000], ids=["before", "after", "last group"])
def test_a_damaged_table_of_times_is_not_believed(offset: int, whole: Path) -> None:
    # In the group of pictures that is looked at in the middle.
    with Video(damage_a_time(whole, 0.45, offset)) as video:
        times = video.timestamps_seconds()
        assert 290 <= len(times) <= 300
        assert np.all(np.diff(times) > 0)
        numbers = [read_number(frame) for frame in video.frames_at_indices([0, 60, 100]).frames_THWC]
        assert numbers == [0, 60, 100]


@pytest.fixture(scope="module")
def index_last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames in groups of 30, the index after the frames."""
    return write_video(tmp_path_factory.mktemp("damage") / "index_last.mp4", num_frames=300, gop_frames=30)


def test_two_frames_of_one_time(index_last: Path, tmp_path: Path) -> None:
    reference = Reference(repeat_a_time(index_last, tmp_path / "twice.mp4", 104))
    assert reference.numbers == list(range(300))
    with Video(reference.path) as video:
        assert compare(video, reference).wrong is None


def test_an_empty_sample_is_no_frame(index_last: Path, tmp_path: Path) -> None:
    path = tmp_path / "empty.mp4"
    empty_a_sample(index_last, path, 195)
    reference = Reference(path)
    assert len(reference.numbers) == 299
    with Video(path) as video:
        assert compare(video, reference).wrong is None


def test_packets_that_are_not_those_of_the_index_are_refused(index_last: Path) -> None:
    """As where FFmpeg drops a sample for a reason that the tables do not tell: no frame is taken for another."""
    with Video(index_last) as video:
        video._reader.index.pts[195] += 1
        for _ in range(2):
            with pytest.raises(UnreadableVideoError, match="packet 195 is not that of the file"):
                video.frames_at_indices([209])
        assert read_number(video.frames_at_indices([100]).frames_THWC[0]) == 100


def test_nothing_decodable_in_a_sound_container(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "noise.mp4"
    data = whole.read_bytes()
    start = data.index(b"mdat") + 4
    path.write_bytes(data[:start] + bytes(len(data) - start))
    with pytest.raises(UnreadableVideoError, match=r"noise\.mp4"):
        Video(path)


UNREADABLE = ["text", "empty", "noise", "no_index", "audio", "wav", "no_frames", "cover", "pipe", "device", "too_long"]


@pytest.mark.parametrize("kind", [*UNREADABLE, "folder"])
def test_what_is_no_video_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = unreadable_files(tmp_path)[kind]
    start = time.monotonic()
    with pytest.raises(UnreadableVideoError, match=path.name):
        Video(path)
    assert time.monotonic() - start < 5.0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_file_that_may_not_be_read(what: str, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    path = write_video(tmp_path / "closed" / "secret.mp4")
    locked = path if what == "file" else path.parent
    locked.chmod(0)
    try:
        with pytest.raises(UnreadableVideoError, match=r"secret\.mp4.*Permission denied"):
            Video(path)
    finally:
        locked.chmod(0o700)


def test_message_has_ffmpegs_reason(tmp_path: Path) -> None:
    with pytest.raises(UnreadableVideoError, match="Invalid data found"):
        Video(unreadable_files(tmp_path)["text"])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(VideoNotFoundError, match=r"gone\.mp4"):
        Video(tmp_path / "gone.mp4")
    with pytest.raises(FileNotFoundError):
        Video(str(tmp_path / "gone.mp4"))


def test_file_that_is_cut_while_open_gives_a_video_error(tmp_path: Path) -> None:
    path = write_video(tmp_path / "cut.mp4", num_frames=300, gop_frames=30, container_options={"movflags": "faststart"})
    with Video(path) as video:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        for _ in range(2):
            with pytest.raises(VideoError, match=r"cut\.mp4: (the file was changed while|the video was closed)"):
                video.frames_at_indices([200])


@pytest.mark.parametrize("method", ["packets", "decode"])
def test_what_nobody_foresaw_is_a_video_error_with_its_cause(
    method: str, whole: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NoReturn:
        raise KeyError("odd")

    with Video(whole) as video:
        monkeypatch.setattr(VideoSource, method, fail)
        for read in (lambda: Video(whole), lambda: video.frames_at([5.0])):
            with pytest.raises(UnreadableVideoError, match=r"whole\.mp4: .* KeyError: 'odd'") as caught:
                read()
            assert isinstance(caught.value.__cause__, KeyError)
            assert "in fail" in caplog.text, "the traceback is lost"
            caplog.clear()


def test_a_callers_mistake_is_not_the_files(whole: Path) -> None:
    with Video(whole) as video, pytest.raises(ValueError, match="at least 1 pixel"):
        video.frames(FrameRequest(0, 28, seconds=(0.0,)))
