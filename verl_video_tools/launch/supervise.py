"""Runs a training command, and ends all that it has started once it is over or a signal asks for that.

    python -m verl_video_tools.launch.supervise -- COMMAND [ARGUMENT ...]

Ray's processes and vLLM's engines outlive a driver that was killed. They leave segments of shared memory, and files in
the temporary folder, also after a run that succeeded. Here they are the descendants of one process (Linux calls it a
child subreaper: orphans become its children), so that none of them is missed.

There are two of them, the second a child of the first, so that either may be killed: the first ends what an only child
has left, and the kernel sends the second a signal when its parent is gone.

SIGINT, SIGTERM and SIGHUP end the run at once. Exit code: that of the command, or 128 + the signal's number.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import TextIO

import psutil

from verl_video_tools.launch.console import Console, write_line
from verl_video_tools.verl_plugin.marked_warnings import MARK

_MODULE = "verl_video_tools.launch.supervise"
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SHARED_MEMORY = Path("/dev/shm")
_ADVICE = "Start the same command again to resume from the last checkpoint."
_LOOK_SECONDS = 0.2
"""How often to see whether shared memory has come: what the run has opened must be known before its owners are dead."""
_LOOK_SHARE = 0.02
"""Of the time at most, for looking through the run's processes: a data loader makes segments all the time."""
_LOOK_PAUSE_SECONDS = 5.0
"""Longest pause after a look. On a busy machine a look takes a second; a run may end 15 s after it made a segment."""
_GRACE_SECONDS = 30.0
"""Time for Ray to end its processes in order after the driver got SIGTERM."""
_PATIENCE_SECONDS = 1.0
"""Time for the reader of standard error."""
_LINGER_SECONDS = 2.0
"""That Ray's workers may outlive a driver which has ended in order."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # From the first supervisor to the second:
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--terminal", type=int, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+", help="after --")
    options = parser.parse_args()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # whatever has started this program may be killed
    terminal = None if options.terminal is None else os.fdopen(options.terminal, "w")
    sys.exit(supervise(options.command, folder=options.folder, terminal=terminal))


def supervise(
    command: Sequence[str],
    stop_file: Path | None = None,
    folder: Path | None = None,
    console: Console | None = None,
    terminal: TextIO | None = None,
) -> int:
    """Run `command` to its end and leave nothing of it behind; exit code as a shell reports it.

    Args:
        stop_file: made at the first signal, after which the trainer saves a checkpoint at the end of its step and ends
            by itself; the second signal ends the run at once.
        console: shows a user's part of what the command then writes to the console's log; None: the command prints
            itself.
        folder: for temporary files, from the first supervisor to the second; the first has none yet.
        terminal: the same for standard error of a first one with a console: where that one is killed, nothing else
            shows what the second writes to the log.
    """
    parent = None if folder is None else os.getppid()  # of the second one; it may be killed as soon as the command runs
    passed = []
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="vvt-run-"))
        options = ["--folder", str(folder)]
        if console is not None:
            passed = [os.dup(sys.stderr.fileno())]
            options += ["--terminal", str(passed[0])]
        command = [sys.executable, "-m", _MODULE, *options, "--", *command]
    if stop_file is not None:
        stop_file.unlink(missing_ok=True)  # of an earlier run
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    segments: set[int] = set()
    status = 1
    signals = _Signals()
    try:
        with nullcontext() if console is None else console.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                env=environment(os.environ, folder),
                start_new_session=True,  # a terminal's Ctrl-C reaches this process alone
                pass_fds=passed,
                preexec_fn=_interruptible,
            )
        if console is not None:
            console.start()  # after the fork, which a second thread would disturb
        status = _watch(process, command, stop_file, signals, segments, parent, terminal)
    finally:
        _end_descendants(segments)
        _unlink(segments)
        shutil.rmtree(folder, ignore_errors=True)
        signals.close()
        if console is not None:
            console.end(status)
    return status


def environment(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`variables`, with `folder` for temporary files.

    Ray's logs stay where they would be, and compiled kernels where the next run finds them.
    """
    usual = tempfile.gettempdir()
    kept = {"RAY_TMPDIR": usual, "TORCHINDUCTOR_CACHE_DIR": str(Path(usual, f"torchinductor_{os.getuid()}"))}
    return {**kept, **variables, "TMPDIR": str(folder)}


def _interruptible() -> None:
    """In the command's process, as if it had been started in the foreground: a shell lets others ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class _Signals:
    """Those that a supervisor waits for, in their order.

    Handlers take them. A mask would hold for one thread alone, and the system gives a signal to any thread that has not
    blocked it: those of libraries, which `vvt train` has in its process.
    """

    def __init__(self) -> None:
        self._received: deque[signal.Signals] = deque()
        self._wakeup, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        waited = {*_END_SIGNALS, signal.SIGCHLD}
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
            waited.remove(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in waited}
        self._wakeup_before = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)

    def _note(self, number: int, frame: object) -> None:
        self._received.append(signal.Signals(number))

    def wait(self, seconds: float) -> signal.Signals | None:
        """The next one, or None after so long without any."""
        if not self._received:
            select.select([self._wakeup], [], [], seconds)
            with suppress(BlockingIOError):
                os.read(self._wakeup, 4096)
        return self._received.popleft() if self._received else None

    def close(self) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self._wakeup)
        os.close(self._written)


def _watch(
    process: subprocess.Popen[bytes],
    command: Sequence[str],
    stop_file: Path | None,
    signals: _Signals,
    segments: set[int],
    parent: int | None,
    terminal: TextIO | None,
) -> int:
    end_signal: signal.Signals | None = None
    seen, next_look = -1, 0.0
    while process.poll() is None:
        changed = _SHARED_MEMORY.stat().st_mtime_ns  # a segment was made, or removed
        if changed != seen and (start := time.monotonic()) >= next_look:
            seen = changed
            segments |= segments_in_use()
            seconds = time.monotonic() - start
            next_look = time.monotonic() + min(seconds / _LOOK_SHARE, _LOOK_PAUSE_SECONDS)
        received = signals.wait(_LOOK_SECONDS)
        if received is None:
            continue
        _reap(process.pid)
        if received == signal.SIGCHLD:
            continue
        if stop_file is not None and end_signal == received == signal.SIGHUP:
            continue  # a terminal that closes may say so twice
        first, end_signal = end_signal is None, received
        if first and stop_file is not None:
            stop_file.parent.mkdir(parents=True, exist_ok=True)
            stop_file.touch()
            _say(
                f"{end_signal.name}: the run saves a checkpoint and stops after its step. A second signal ends it now."
            )
            continue
        if parent is None or os.getppid() != parent:  # else the first supervisor has printed it
            for stream in filter(None, (sys.stderr, terminal)):
                _say(f"ended by {end_signal.name}. {_ADVICE}", stream)
        segments |= segments_in_use()
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS * (2 if parent is None else 1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if end_signal is not None:
        return 128 + end_signal
    if process.returncode < 0:
        ended_by = signal.Signals(-process.returncode)
        cause = " (out of memory?)" if ended_by == signal.SIGKILL else ""
        _say(f"`{_short(command)}` was ended by {ended_by.name}{cause}. {_ADVICE}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _short(command: Sequence[str]) -> str:
    """A Python program as far as its module: `python -m MODULE ...`."""
    return " ".join([*command[:3], *(["..."] if len(command) > 3 else [])])


def _reap(driver: int) -> None:
    """Orphans that have ended; the driver's own exit code is left to `Popen`."""
    for child in psutil.Process().children():
        if child.pid != driver:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def _end_descendants(segments: set[int]) -> None:
    """Kill what is left; new ones may start meanwhile."""
    patience = time.monotonic() + _LINGER_SECONDS
    while _living_descendants() and time.monotonic() < patience:
        _reap(0)
        time.sleep(0.05)
    names: set[str] = set()
    while left := _living_descendants():
        segments |= segments_in_use()
        for child in left:
            with suppress(psutil.NoSuchProcess):
                names.add(child.name())
                child.kill()
        _reap(0)
        time.sleep(0.05)
    _reap(0)
    if names:
        _say(f"ended what the run had left behind: {', '.join(sorted(names))}")


def _living_descendants() -> list[psutil.Process]:
    living = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def segments_in_use(processes: Iterable[psutil.Process] | None = None) -> set[int]:
    """Inodes of shared memory that the descendants, or `processes`, have open or mapped.

    A semaphore is only mapped, and under the name that its file had before it got the one to be removed.
    """
    device = os.stat(_SHARED_MEMORY).st_dev
    found: set[int] = set()
    for process in psutil.Process().children(recursive=True) if processes is None else processes:
        folder = f"/proc/{process.pid}"
        with suppress(OSError):
            maps = Path(folder, "maps").read_text(errors="replace")
            found.update(map(int, re.findall(rf" (\d+) +{_SHARED_MEMORY}/", maps)))
            for descriptor in os.scandir(f"{folder}/fd"):
                with suppress(OSError):
                    status = os.stat(descriptor.path)
                    if status.st_dev == device:
                        found.add(status.st_ino)
    return found


def _unlink(segments: set[int]) -> None:
    """Files of those that the run has had in use and no process has now."""
    left = [entry for entry in os.scandir(_SHARED_MEMORY) if entry.inode() in segments and entry.is_file()]
    in_use = segments_in_use(psutil.process_iter()) if left else set()
    for entry in left:
        if entry.inode() not in in_use:
            Path(entry.path).unlink(missing_ok=True)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def _say(text: str, stream: TextIO | None = None) -> None:
    """On standard error or `stream`; a reader who has stopped or gone does not keep this process from its work."""
    writer = Thread(target=write_line, args=(stream or sys.stderr, f"{MARK} {text}"), daemon=True)
    writer.start()
    writer.join(_PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
