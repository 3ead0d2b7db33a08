"""A file that is no video, or not all of one, says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.videos.files import write_video
from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video import Video

WRITERS = {
    "faststart.mp4": {"container_options": {"movflags": "+faststart"}},
    "plain.mov": {"container_options": {"movflags": "+faststart"}},
    "plain.mkv": {},
    "plain.webm": {"codec": "libvpx-vp9"},
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_download_that_broke_off_lacks_bytes(name: str, tmp_path: Path) -> None:
    whole = write_video(tmp_path / name, **WRITERS[name])
    data = whole.read_bytes()
    with Video(whole) as video:
        assert video.info.missing_bytes == 0
        num_frames = video.info.num_frames
    cut = tmp_path / f"cut_{name}"
    cut.write_bytes(data[: len(data) * 2 // 3])
    with Video(cut) as video:
        assert video.info.missing_bytes == len(data) - len(data) * 2 // 3
        assert 0 < video.info.num_frames < num_frames


def test_a_live_recording_has_no_length_to_compare_with(tmp_path: Path) -> None:
    live = write_video(tmp_path / "live.mkv", container_options={"live": "1"})
    data = live.read_bytes()
    live.write_bytes(data[: len(data) * 2 // 3])
    with Video(live) as video:
        assert video.info.missing_bytes == 0


NO_VIDEOS = {
    "the file is empty": b"",
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
    "a web page": b"\n<!DOCTYPE html>\n<html><head><title>404</title></head></html>",
}


@pytest.mark.parametrize("reason", NO_VIDEOS)
def test_what_is_no_video_is_called_by_its_name(reason: str, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(NO_VIDEOS[reason])
    with pytest.raises(UnreadableVideoError, match=f"cannot be opened as a video: .*{reason}"):
        Video(path)


def test_an_mp4_without_its_table(tmp_path: Path) -> None:
    path = write_video(tmp_path / "video.mp4")
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"moov") - 4])
    with pytest.raises(UnreadableVideoError, match=r"no table of its frames \(moov\)"):
        Video(path)


def test_other_bytes_keep_the_reason_of_ffmpeg(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    with pytest.raises(UnreadableVideoError, match="Invalid data found"):
        Video(path)
