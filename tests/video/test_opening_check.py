"""What a file's headers ask for is refused by name, and costs the process that reads videos neither memory nor time."""

from __future__ import annotations

import os
import resource
import signal
from fractions import Fraction
from pathlib import Path

import pytest

from tests.videos.files import write_grey, write_video
from tests.videos.hostile import announce_samples, write_days
from tests.waiting import is_gone, wait_until
from verl_video_tools.core.errors import DeadlineError, UnreadableVideoError
from verl_video_tools.video import Video, opening, opening_check, source
from verl_video_tools.video.child_process import ChildProcess
from verl_video_tools.video.identity import file_identity
from verl_video_tools.video.opening_check import OpeningCheck
from verl_video_tools.video.source import NEVER, Deadline


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_video(tmp_path / "plain.mp4", num_frames=12)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ChildProcess]:
    """The children that a check starts."""
    children: list[ChildProcess] = []

    def start(command: list[str]) -> ChildProcess:
        children.append(ChildProcess(command))
        return children[-1]

    monkeypatch.setattr(opening_check, "ChildProcess", start)
    return children


@pytest.mark.long  # it takes 2 GB; the limit is the kernel's, and the next test has one of ours
def test_a_header_that_takes_all_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses the child some of what FFmpeg asks for; FFmpeg goes on without, which is no sound file."""
    monkeypatch.setattr(opening_check, "MAX_OPEN_CPU_SECONDS", 60.0)  # a slow machine must not meet the other limit
    path = announce_samples(tmp_path / "hostile.mp4", 85_000_000)
    assert path.stat().st_size < 5_000
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnreadableVideoError, match=r"hostile\.mp4: .* opening it takes \d\.\d GB of memory, more than"):
        Video(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It takes more memory than is allowed here."""
    monkeypatch.setattr(opening_check, "MAX_OPEN_BYTES", 25_000_000)
    return announce_samples(tmp_path / "hostile.mp4", 1_500_000)


def test_a_header_that_takes_more_than_is_allowed(hostile: Path) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnreadableVideoError, match=r"hostile\.mp4: .* opening it takes 0\.\d GB of memory, more than"):
        Video(hostile)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 30_000


def test_a_header_that_takes_long_is_refused(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_check, "MAX_OPEN_CPU_SECONDS", 0.01)
    with pytest.raises(UnreadableVideoError, match=r"hostile\.mp4: .* opening it takes more than 0\.01 s of CPU time"):
        Video(hostile)


@pytest.mark.slow
def test_an_index_in_which_a_search_takes_hours_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its edit list hides all frames but twelve, and FFmpeg passes over them for every step of its search."""
    monkeypatch.setattr(opening_check, "MAX_OPEN_CPU_SECONDS", 1.0)
    with pytest.raises(UnreadableVideoError, match=r"hidden\.mp4: .* takes more than 1 s of CPU time"):
        Video(announce_samples(tmp_path / "hidden.mp4", 500_000))


def test_no_larger_picture_is_decoded_to_find_out_about_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transport stream says little of its pictures, so FFmpeg decodes some of them while it opens the file."""
    write_grey(tmp_path / "large.ts", 3, Fraction(30), 4096, 4096)
    large = file_identity(tmp_path / "large.ts")
    monkeypatch.setattr(opening_check, "MAX_OPEN_BYTES", 40_000_000)
    with pytest.raises(UnreadableVideoError, match="GB of memory"):
        OpeningCheck().check(large, NEVER)
    monkeypatch.setitem(opening_check.OPEN_OPTIONS, "max_pixels", str(4000 * 4000))
    OpeningCheck().check(large, NEVER)


def test_a_child_that_hangs_is_ended(path: Path, tmp_path: Path, started: list[ChildProcess]) -> None:
    check = OpeningCheck()
    check.check(file_identity(path), NEVER)
    os.kill(started[0]._process.pid, signal.SIGSTOP)
    other = write_video(tmp_path / "other.mp4", num_frames=12)
    with pytest.raises(DeadlineError, match=r"other\.mp4: open: not done within 0\.2 s"):
        check.check(file_identity(other), Deadline(0.2, "other.mp4: open"))
    assert not started[0].is_running
    check.check(file_identity(other), NEVER)
    assert len(started) == 2


def test_a_crash_of_the_child_is_told(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "crash.py"
    program.write_text("import os, sys\nsys.stdin.readline()\nos.abort()\n")
    monkeypatch.setattr(opening_check, "CHILD_PROGRAM", program)
    with pytest.raises(UnreadableVideoError, match=r"plain\.mp4: .* was killed by signal 6"):
        OpeningCheck().check(file_identity(path), NEVER)


def test_a_child_that_died_while_idle_blames_no_file(path: Path, tmp_path: Path, started: list[ChildProcess]) -> None:
    check = OpeningCheck()
    check.check(file_identity(path), NEVER)
    started[0].kill()
    check.check(file_identity(write_video(tmp_path / "other.mp4", num_frames=12)), NEVER)
    assert len(started) == 2


def test_a_file_is_checked_once_until_it_changes(
    path: Path, started: list[ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = OpeningCheck()
    asked: list[str] = []
    for _ in range(2):
        check.check(file_identity(path), NEVER)
    monkeypatch.setattr(
        started[0], "ask", lambda request, deadline: asked.append(request["path"]) or {"memory_bytes": 0}
    )
    check.check(file_identity(path), NEVER)
    assert asked == []
    write_video(path, num_frames=15)
    check.check(file_identity(path), NEVER)
    assert asked == [str(path)]


def test_a_forked_process_starts_a_child_of_its_own(path: Path, tmp_path: Path) -> None:
    other = write_video(tmp_path / "other.mp4", num_frames=12)
    Video(path).close()
    (child,) = opening_check._check._idle[:1]
    if (forked := os.fork()) == 0:
        with Video(other) as opened:
            os._exit(0 if opened.info.num_frames == 12 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert child.is_running
    Video(other).close()
    assert child in opening_check._check._idle


def test_the_child_ends_with_its_process(path: Path) -> None:
    reader, writer = os.pipe()
    if (forked := os.fork()) == 0:
        Video(path).close()
        os.write(writer, str(opening_check._check._idle[0]._process.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(forked, 0)
    pid = int(os.read(reader, 20))
    wait_until(lambda: is_gone(pid), "the end of the child whose process was killed", 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_other_decoders_see_no_file_that_is_refused(
    suffix: str, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is chosen: none is opened."""
    handed: list[Path] = []
    monkeypatch.setattr(opening, "open_backend", lambda name, opened, *_: handed.append(opened.path))
    long = write_days(tmp_path / f"long.{suffix}", 90_000)
    plain = write_video(tmp_path / f"plain.{suffix}", num_frames=12)
    listed = tmp_path / f"listed.{suffix}"
    listed.write_text(f"ffconcat version 1.0\nfile {plain.name}\n")
    refused = {long: r"lasts 9\d{4} s, longer than the 86400 s", listed: "cannot be opened", hostile: "GB of memory"}
    for path, message in refused.items():
        with pytest.raises(UnreadableVideoError, match=message):
            Video(path, backend="decord")
    monkeypatch.setattr(source, "MAX_PACKETS", 10)
    with pytest.raises(UnreadableVideoError, match="more than 10 packets"):
        Video(plain, backend="decord")
    assert handed == []
