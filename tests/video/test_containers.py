"""A video file opens no other file, whatever it holds and whatever it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.videos.files import write_video
from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video import source
from verl_video_tools.video.video import Video

LISTS = {
    "concat": "ffconcat version 1.0\nfile {name}\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{name}\n#EXT-X-ENDLIST\n",
    "hls, itself": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nevil.m3u8\n",
}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return write_video(tmp_path / "secret.ts", num_frames=12)


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_other_files_is_refused(secret: Path, kind: str) -> None:
    evil = secret.with_name("evil.mp4" if kind == "concat" else "evil.m3u8")
    evil.write_text(LISTS[kind].format(name=secret.name))
    with pytest.raises(UnreadableVideoError, match="a playlist, a list such as concat or dash"):
        Video(evil)


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_is_called_a_video_is_refused(secret: Path, kind: str) -> None:
    """FFmpeg itself takes no list of HLS under a name without its suffix."""
    evil = secret.with_name("evil.mp4")
    evil.write_text(LISTS[kind].format(name=secret.name))
    with pytest.raises(UnreadableVideoError, match="cannot be opened as a video"):
        Video(evil)


def test_a_pattern_of_pictures_is_refused(tmp_path: Path) -> None:
    """The demuxer image2 takes the name for a pattern, of files beside the one that is named."""
    still = write_video(tmp_path / "plain.mp4", num_frames=2)
    (tmp_path / "a%03d.png").write_bytes(still.read_bytes()[:100])
    with pytest.raises(UnreadableVideoError):
        Video(tmp_path / "a%03d.png")


def test_a_picture_larger_than_the_cap_is_refused(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_PICTURE_PIXELS", 100)
    with pytest.raises(UnreadableVideoError, match=r"pictures of \d+x\d+ are larger than the 100 pixels"):
        Video(secret)
