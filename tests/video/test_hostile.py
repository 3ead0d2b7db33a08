"""What a file's headers ask for is refused by name, and costs the process that reads videos little memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from tests.videos.files import write_grey, write_video
from tests.videos.hostile import announce_samples, write_days
from tests.waiting import is_gone, wait_until
from verl_video_tools.core.errors import UnreadableVideoError, VideoError
from verl_video_tools.video import Video, isolated, source
from verl_video_tools.video import video as video_module
from verl_video_tools.video.isolated import IsolatedOpener


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_video(tmp_path / "plain.mp4", num_frames=12)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """FFmpeg would make a table of 2 GB for its frames."""
    path = announce_samples(tmp_path / "hostile.mp4", 85_000_000)
    assert path.stat().st_size < 5_000
    return path


def test_a_header_that_takes_all_memory_is_refused(hostile: Path) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnreadableVideoError, match=r"hostile\.mp4: the video stream holds no frames"):
        Video(hostile)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 30_000


OPEN = """
import sys
from verl_video_tools.video import source

def peak_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmPeak"))

source.OPEN_OPTIONS["max_pixels"] = sys.argv[2]
before_kb = peak_kb()
source.open_container(sys.argv[1]).close()
print(peak_kb() - before_kb)
"""


def test_no_larger_picture_is_decoded_to_find_out_about_a_stream(tmp_path: Path) -> None:
    """A transport stream says little of its pictures, so FFmpeg decodes some of them while it opens the file."""
    write_grey(tmp_path / "large.ts", 3, Fraction(30), 4096, 4096)

    def opened_kb(max_pixels: int) -> int:
        command = [sys.executable, "-c", OPEN, str(tmp_path / "large.ts"), str(max_pixels)]
        return int(subprocess.check_output(command))

    assert opened_kb(4000 * 4000) < 40_000 < opened_kb(4096 * 4096)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_other_decoders_see_no_file_that_is_refused(
    suffix: str, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is chosen: none is opened."""
    handed: list[Path] = []
    monkeypatch.setattr(video_module, "open_backend", lambda name, opened, *_: handed.append(opened.path))
    long = write_days(tmp_path / f"long.{suffix}", 90_000)
    plain = write_video(tmp_path / f"plain.{suffix}", num_frames=12)
    listed = tmp_path / f"listed.{suffix}"
    listed.write_text(f"ffconcat version 1.0\nfile {plain.name}\n")
    refused = {long: r"lasts 9\d{4} s, longer than the 86400 s", listed: "cannot be opened", hostile: "no frames"}
    for path, message in refused.items():
        with pytest.raises(UnreadableVideoError, match=message):
            Video(path, backend="decord")
    monkeypatch.setattr(source, "MAX_PACKETS", 10)
    with pytest.raises(UnreadableVideoError, match="more than 10 packets"):
        Video(plain, backend="decord")
    assert handed == []


# ------------------------------------------------------------------------------------------------------ in a child only


def test_facts_come_from_the_child(path: Path, hostile: Path) -> None:
    opener = IsolatedOpener()
    for _ in range(2):
        with Video(path) as video:
            assert opener.info(str(path), 30.0) == video.info
        with pytest.raises(UnreadableVideoError, match=r"hostile\.mp4: the video stream holds no frames"):
            opener.info(str(hostile), 30.0)
    opener.close()


def test_an_index_in_which_a_search_takes_hours_ends_in_time(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its edit list hides all frames but twelve, and FFmpeg passes over them for every step of its search."""
    opener = IsolatedOpener()
    opener.info(str(path), 30.0)
    monkeypatch.setattr(isolated, "START_SECONDS", 2.0)
    hidden = announce_samples(tmp_path / "hidden.mp4", 5_000_000)
    # The child notices by its own clock, or its process is ended.
    with pytest.raises(VideoError, match=r"hidden\.mp4: open: not done within"):
        opener.info(str(hidden), 0.1)
    monkeypatch.setattr(isolated, "START_SECONDS", 60.0)
    assert opener.info(str(path), 30.0).num_frames == 12
    opener.close()


def test_a_crash_of_the_child_is_told(path: Path) -> None:
    opener = IsolatedOpener()
    opener.info(str(path), 30.0)
    assert opener._child is not None
    os.kill(opener._child._process.pid, signal.SIGABRT)
    with pytest.raises(UnreadableVideoError, match=r"plain\.mp4: .* was killed by signal 6"):
        opener.info(str(path), 30.0)
    assert opener.info(str(path), 30.0).num_frames == 12
    opener.close()


def test_the_child_ends_with_its_process(path: Path) -> None:
    reader, writer = os.pipe()
    if (forked := os.fork()) == 0:
        opener = IsolatedOpener()
        opener.info(str(path), 30.0)
        assert opener._child is not None
        os.write(writer, str(opener._child._process.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(forked, 0)
    pid = int(os.read(reader, 20))
    wait_until(lambda: is_gone(pid), "the end of the child whose process was killed", 10.0)
