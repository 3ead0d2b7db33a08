"""What a supervised command leaves behind: nothing, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

from tests.waiting import is_gone, wait_until
from verl_video_tools.launch.supervise import environment

REPO = Path(__file__).parents[2]
SUPERVISE = [sys.executable, "-m", "tests.launch.quick_supervise"]
LIMIT_SECONDS = 60.0

SLEEPER = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""
DAEMON = """
import os, signal, subprocess, sys, time
grandchild = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"],
    start_new_session=True)
open(sys.argv[1], "w").write(str(grandchild.pid))
"""
"""Starts a process that has a session of its own and takes no SIGTERM, as a parent that ends or sleeps."""
UNTIL_FILE = """
import os, sys, time
assert not os.path.exists(sys.argv[2])
open(sys.argv[1], "w").write(str(os.getpid()))
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""
"""Ends once there is the second file, which an earlier run must not have left."""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=REPO,
            env={**os.environ, **variables},
            text=True,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def written(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text(), str(path), LIMIT_SECONDS)
    return int(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("exit_code", [3, 0])
def test_a_process_that_outlives_the_command_is_ended(exit_code: int, tmp_path: Path, start: Callable) -> None:
    """After a run that succeeded nothing is said: Ray always leaves some for a moment."""
    pid_file = tmp_path / "pid"
    run = start(*SUPERVISE, "--", sys.executable, "-c", DAEMON + f"sys.exit({exit_code})", str(pid_file))
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == exit_code
    assert is_gone(written(pid_file))
    assert ("ended what the run had left behind: python" in messages) == (exit_code != 0)


@pytest.mark.slow
def test_a_killed_supervisor_ends_its_command(tmp_path: Path, start: Callable) -> None:
    ready = tmp_path / "pid"
    run = start(*SUPERVISE, "--", sys.executable, "-c", SLEEPER, str(ready))
    pid = written(ready)
    run.kill()
    run.communicate(timeout=LIMIT_SECONDS)
    wait_until(lambda: is_gone(pid), "the end of the command", LIMIT_SECONDS)


def test_a_command_that_was_killed_is_named(start: Callable) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    run = start(*SUPERVISE, "--", sys.executable, "-c", script)
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == 128 + signal.SIGKILL
    assert "` was ended by SIGKILL (out of memory?). Start the same command again to resume" in messages


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_all(tmp_path: Path, start: Callable, name: str) -> None:
    pid_file = tmp_path / "pid"
    run = start(*SUPERVISE, "--", sys.executable, "-c", DAEMON + "time.sleep(600)", str(pid_file))
    pid = written(pid_file)
    run.send_signal(signal.Signals[name])
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == 128 + signal.Signals[name]
    assert is_gone(pid)
    assert messages.count(f"ended by {name}. Start the same command again to resume") == 1


def test_a_run_goes_on_after_it_was_stopped_and_continued(tmp_path: Path, start: Callable) -> None:
    """Ctrl-Z and `fg`; `scontrol suspend` and `resume`."""
    ready, go_on = tmp_path / "pid", tmp_path / "go_on"
    run = start(*SUPERVISE, "--", sys.executable, "-c", UNTIL_FILE, str(ready), str(go_on))
    written(ready)
    supervisor = psutil.Process(run.pid)
    for _ in range(3):
        supervisor.suspend()
        time.sleep(0.5)  # longer than a supervisor waits for a signal
        supervisor.resume()
        time.sleep(0.3)
    go_on.touch()
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert (run.returncode, messages) == (0, "")


def test_with_a_stop_file_the_first_signal_asks_and_the_second_ends(tmp_path: Path, start: Callable) -> None:
    stop_file, ready = tmp_path / "run" / "stop_requested", tmp_path / "pid"
    run = start(*SUPERVISE, "--stop-file", str(stop_file), "--", sys.executable, "-c", SLEEPER, str(ready))
    pid = written(ready)
    run.send_signal(signal.SIGTERM)
    wait_until(stop_file.exists, "the stop file", LIMIT_SECONDS)
    assert not is_gone(pid) and run.poll() is None
    run.send_signal(signal.SIGTERM)
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == 143 and is_gone(pid)
    assert "SIGTERM: the run saves a checkpoint and stops after its step" in messages


def test_threads_of_libraries_take_no_signal_away(tmp_path: Path, start: Callable) -> None:
    """The system gives a signal to any thread that has not blocked it, and its default would end the supervisor."""
    stop_file, ready = tmp_path / "stop_requested", tmp_path / "pid"
    options = ("--threads", "16", "--stop-file", str(stop_file))
    run = start(*SUPERVISE, *options, "--", sys.executable, "-c", SLEEPER, str(ready))
    pid = written(ready)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGTERM):
        run.send_signal(number)
        wait_until(stop_file.exists, "the stop file", LIMIT_SECONDS)
    run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == 143 and is_gone(pid)


def test_a_run_that_stops_as_asked_has_not_failed_of_itself(tmp_path: Path, start: Callable) -> None:
    stop_file, ready = tmp_path / "stop_requested", tmp_path / "pid"
    stop_file.touch()  # left by an earlier run, which this one must not take for its own
    run = start(
        *SUPERVISE, "--stop-file", str(stop_file), "--", sys.executable, "-c", UNTIL_FILE, str(ready), str(stop_file)
    )
    written(ready)
    run.send_signal(signal.SIGINT)
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == 130
    assert "ended by" not in messages and "Traceback" not in messages


def test_shared_memory_of_killed_processes_goes_and_that_of_others_stays(tmp_path: Path, start: Callable) -> None:
    script = (
        "import _multiprocessing, os, sys, time\n"
        "from multiprocessing import resource_tracker, shared_memory\n"
        "resource_tracker.register = lambda *arguments: None\n"  # as where the tracker is killed as well
        "own, others = shared_memory.SharedMemory(create=True, size=64), shared_memory.SharedMemory(sys.argv[2])\n"
        "mapped = shared_memory.SharedMemory(create=True, size=64); os.close(mapped._fd); mapped._fd = -1\n"
        "semaphore = _multiprocessing.SemLock(1, 1, 1, f'/vvt-test-{os.getpid()}', False)\n"
        "names = [own.name, mapped.name, f'sem.vvt-test-{os.getpid()}', '.']\n"
        "open(sys.argv[1], 'w').write(' '.join(names)); time.sleep(600)"
    )
    others = SharedMemory(create=True, size=64)
    try:
        ready = tmp_path / "name"
        run = start(*SUPERVISE, "--", sys.executable, "-c", script, str(ready), others.name)
        wait_until(lambda: ready.exists() and ready.read_text().endswith("."), "the segments", LIMIT_SECONDS)
        own = [Path("/dev/shm", name) for name in ready.read_text().split()[:3]]
        assert all(path.exists() for path in own)
        run.terminate()
        run.communicate(timeout=LIMIT_SECONDS)
        assert not any(path.exists() for path in own)
        assert Path("/dev/shm", others.name).exists()
    finally:
        others.close()
        others.unlink()


@pytest.mark.slow
def test_shared_memory_goes_whose_owner_was_killed_soon(tmp_path: Path, start: Callable) -> None:
    """A killed engine leaves what it had opened seconds ago, and nobody has it open when the run ends."""
    owner = (
        "import os, signal, sys, time; from multiprocessing import resource_tracker, shared_memory\n"
        "resource_tracker.register = lambda *arguments: None\n"
        "memory = shared_memory.SharedMemory(create=True, size=64); open(sys.argv[1], 'w').write(memory.name)\n"
        "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    script = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', *sys.argv[1:]]); time.sleep(0.5)"
    run = start(*SUPERVISE, "--", sys.executable, "-c", script, owner, str(tmp_path / "name"))
    run.communicate(timeout=LIMIT_SECONDS)
    assert not Path("/dev/shm", (tmp_path / "name").read_text()).exists()


def test_temporary_files_go(tmp_path: Path, start: Callable) -> None:
    ready = tmp_path / "folder"
    script = "import sys, tempfile; handle, path = tempfile.mkstemp(); open(sys.argv[1], 'w').write(path)"
    run = start(*SUPERVISE, "--", sys.executable, "-c", script, str(ready), TMPDIR=str(tmp_path))
    run.communicate(timeout=LIMIT_SECONDS)
    assert Path(ready.read_text()).parent.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_is_to_be_found_afterwards_stays_where_it_would_be(tmp_path: Path) -> None:
    variables = environment({"RAY_TMPDIR": "/mine"}, tmp_path)
    assert variables["TMPDIR"] == str(tmp_path)
    assert variables["RAY_TMPDIR"] == "/mine"
    assert Path(variables["TORCHINDUCTOR_CACHE_DIR"]).parent != tmp_path


SAVING = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
time.sleep(1)
open(sys.argv[1] + ".saved", "w")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_the_whole_process_group_lets_the_run_save(tmp_path: Path, start: Callable, name: str) -> None:
    pid_file, stop_file = tmp_path / "pid", tmp_path / "stop_requested"
    command = (sys.executable, "-c", SAVING, str(pid_file), str(stop_file))
    run = start(*SUPERVISE, "--stop-file", str(stop_file), "--", *command)
    written(pid_file)
    os.killpg(run.pid, signal.Signals[name])
    if name == "SIGHUP":  # from the terminal's shell, and from the kernel once that shell has ended
        wait_until(stop_file.exists, "the stop file", LIMIT_SECONDS)
        os.killpg(run.pid, signal.SIGHUP)
    _, messages = run.communicate(timeout=LIMIT_SECONDS)
    assert (tmp_path / "pid.saved").exists() and run.returncode == 128 + signal.Signals[name]
    assert len(messages.splitlines()) == 1 and "the run saves a checkpoint and stops after its step" in messages
