"""Runs a training command, and ends all that it has started once it is over or a signal asks for that.

    python -m verl_video_tools.launch.supervise -- COMMAND [ARGUMENT ...]

Ray's processes and vLLM's engines outlive a driver that was killed. They leave segments of shared memory, and files in
the temporary folder, also after a run that succeeded. Here they are the descendants of one process (Linux calls it a
child subreaper: orphans become its children), so that none of them is missed.

SIGINT, SIGTERM and SIGHUP end the run at once. Exit code: that of the command, or 128 + the signal's number.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread

import psutil

from verl_video_tools.launch.console import Console, write_line
from verl_video_tools.verl_plugin.marked_warnings import MARK

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SHARED_MEMORY = Path("/dev/shm")
_ADVICE = "Start the same command again to resume from the last checkpoint."
_POLL_SECONDS = 0.2
"""How often to see whether shared memory has come: what the run has opened must be known before its owners are dead."""
_SCAN_SHARE = 0.02
"""Of the time at most, for looking through the run's processes: a data loader makes segments all the time."""
_SCAN_PAUSE_SECONDS = 5.0
"""Longest pause after a scan. On a busy machine a scan takes a second; a run may end 15 s after it made a segment."""
_GRACE_SECONDS = 30.0
"""Time for Ray to end its processes in order after the driver got SIGTERM."""
_MESSAGE_SECONDS = 1.0
"""Time for the reader of standard error."""
_LINGER_SECONDS = 2.0
"""That Ray's workers may outlive a driver which has ended in order."""
_libc = ctypes.CDLL(None, use_errno=True)


def supervise(command: Sequence[str], stop_file: Path | None = None, console: Console | None = None) -> int:
    """Run `command` to its end and leave nothing of it behind; exit code as a shell reports it.

    Args:
        stop_file: made at the first signal, after which the trainer saves a checkpoint at the end of its step and ends
            by itself; the second signal ends the run at once.
        console: shows a user's part of what the command then writes to the console's log; None: the command prints
            itself.
    """
    if stop_file is not None:
        stop_file.unlink(missing_ok=True)  # of an earlier run
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    folder = Path(tempfile.mkdtemp(prefix="vvt-run-"))
    segments: set[int] = set()
    status = 1
    with _received_signals() as signals:
        try:
            with nullcontext() if console is None else console.log.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=None if output is None else subprocess.STDOUT,
                    env=environment(os.environ, folder),
                    start_new_session=True,  # a terminal's Ctrl-C reaches this process alone
                    preexec_fn=_prepare_command,
                )
            if console is not None:
                console.start()  # after the fork, which a second thread would disturb
            status = _watch(process, command, stop_file, signals, segments)
        finally:
            _end_descendants(segments, is_reported=status != 0)  # Ray's last processes outlive every run
            _unlink(segments)
            shutil.rmtree(folder, ignore_errors=True)
            if console is not None:
                console.end(status)
    return status


def environment(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`variables`, with `folder` for temporary files.

    Ray's logs stay where they would be, and compiled kernels where the next run finds them.
    """
    usual = tempfile.gettempdir()
    defaults = {"RAY_TMPDIR": usual, "TORCHINDUCTOR_CACHE_DIR": str(Path(usual, f"torchinductor_{os.getuid()}"))}
    return {**defaults, **variables, "TMPDIR": str(folder)}


def _prepare_command() -> None:
    """In the command's process, before its program starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in the foreground: a shell lets background jobs ignore it
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # the supervisor may be killed


@contextmanager
def _received_signals() -> Iterator[deque[signal.Signals]]:
    """Signals to end that arrive meanwhile, in their order.

    Handlers take them. A mask would hold for one thread alone, and the system gives a signal to any thread that has not
    blocked it: those of libraries, which `vvt train` has in its process.
    """
    received: deque[signal.Signals] = deque()
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup
    numbers = [number for number in _END_SIGNALS if not (is_ignored and number == signal.SIGHUP)]
    before = {
        number: signal.signal(number, lambda number, frame: received.append(signal.Signals(number)))
        for number in numbers
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not of Python


def _watch(
    process: subprocess.Popen[bytes],
    command: Sequence[str],
    stop_file: Path | None,
    signals: deque[signal.Signals],
    segments: set[int],
) -> int:
    """Wait for the command, note its segments of shared memory, and pass signals on; its exit code."""
    end_signal: signal.Signals | None = None
    last_change, next_scan = -1, 0.0
    while process.poll() is None:
        changed = _SHARED_MEMORY.stat().st_mtime_ns  # a segment was made, or removed
        if changed != last_change and (start := time.monotonic()) >= next_scan:
            last_change = changed
            segments |= segments_in_use()
            seconds = time.monotonic() - start
            next_scan = time.monotonic() + min(seconds / _SCAN_SHARE, _SCAN_PAUSE_SECONDS)
        _reap(process.pid)
        if not signals:
            time.sleep(_POLL_SECONDS)
            continue
        received = signals.popleft()
        if stop_file is not None and end_signal == received == signal.SIGHUP:
            continue  # a terminal that closes may say so twice
        is_first, end_signal = end_signal is None, received
        if is_first and stop_file is not None:
            stop_file.parent.mkdir(parents=True, exist_ok=True)
            stop_file.touch()
            _say(f"{received.name}: the run saves a checkpoint and stops after its step. A second signal ends it now.")
            continue
        _say(f"ended by {received.name}. {_ADVICE}")
        segments |= segments_in_use()
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if end_signal is not None:
        return 128 + end_signal
    if process.returncode < 0:
        ended_by = signal.Signals(-process.returncode)
        cause = " (out of memory?)" if ended_by == signal.SIGKILL else ""
        program = " ".join([*command[:3], *(["..."] if len(command) > 3 else [])])  # `python -m MODULE ...`
        _say(f"`{program}` was ended by {ended_by.name}{cause}. {_ADVICE}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _reap(driver: int) -> None:
    """Orphans that have ended; the driver's own exit code is left to `Popen`."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == driver:
                return
            os.waitpid(ended.si_pid, 0)


def _end_descendants(segments: set[int], is_reported: bool) -> None:
    """Kill what is left; new ones may start meanwhile."""
    end = time.monotonic() + _LINGER_SECONDS
    while _living_descendants() and time.monotonic() < end:
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
    if names and is_reported:
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
    inodes: set[int] = set()
    for process in psutil.Process().children(recursive=True) if processes is None else processes:
        folder = f"/proc/{process.pid}"
        with suppress(OSError):
            maps = Path(folder, "maps").read_text(errors="replace")
            inodes.update(map(int, re.findall(rf" (\d+) +{_SHARED_MEMORY}/", maps)))
            for descriptor in os.scandir(f"{folder}/fd"):
                with suppress(OSError):
                    status = os.stat(descriptor.path)
                    if status.st_dev == device:
                        inodes.add(status.st_ino)
    return inodes


def _unlink(segments: set[int]) -> None:
    """Files of those that the run has had in use and no process has now."""
    left = [entry for entry in os.scandir(_SHARED_MEMORY) if entry.inode() in segments and entry.is_file()]
    in_use = segments_in_use(psutil.process_iter()) if left else set()
    for entry in left:
        if entry.inode() not in in_use:
            Path(entry.path).unlink(missing_ok=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def _say(text: str) -> None:
    """On standard error; a reader who has stopped or gone does not keep this process from its work."""
    writer = Thread(target=write_line, args=(sys.stderr, f"{MARK} {text}"), daemon=True)
    writer.start()
    writer.join(_MESSAGE_SECONDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="+", help="after --")
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # whatever has started this program may be killed
    sys.exit(supervise(parser.parse_args().command))
