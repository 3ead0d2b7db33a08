"""A hung decoder, browser or engine costs the test in which it hangs; the others of the suite run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.leftovers import VARIABLE, processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # 20 seconds on a machine that is not busy

REPO = Path(__file__).parents[1]
TIMEOUT_SECONDS, GRACE_SECONDS, BROWSER_SECONDS = 2, 1, 1

SUITE = {
    "conftest.py": """
        from tests.records.conftest import chromium

        pytest_plugins = ["tests.hard_limit"]
        """,
    "test_a_decoder.py": """
        import ctypes, subprocess

        def test_before(): pass

        def test_hung():
            subprocess.Popen(["sleep", "1000"])
            libc = ctypes.PyDLL(None)  # keeps the GIL
            mutex = ctypes.create_string_buffer(64)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)  # for ever, and no signal interrupts it

        def test_after(): pass
        """,
    "test_b_browser.py": """
        def test_hung(chromium):
            chromium("file:///page.html")

        def test_after(): pass
        """,
    "test_c_engine.py": """
        import subprocess, time
        import pytest

        def start():
            ignores = "trap '' TERM; echo started; sleep 1000 & wait"
            process = subprocess.Popen(["bash", "-c", ignores], stdout=subprocess.PIPE)
            process.stdout.readline()
            return process

        def stop(process):
            process.terminate()
            process.wait()

        @pytest.fixture
        def engine():
            process = start()
            time.sleep(0.1)  # older than the test's own phase, in ticks of the kernel's clock
            yield process
            stop(process)

        def test_hung(): stop(start())

        def test_hung_to_the_end(engine): engine.wait()

        def test_after(): pass
        """,
}
"""A suite in which things hang."""
BROWSER = """#!/bin/bash
trap '' TERM
sleep 1000 & wait
"""


@dataclass(frozen=True)
class Session:
    """What such a suite has said and left."""

    output: str
    errors: str
    left: list[str]

    def failure(self, test: str) -> str:
        """What is told of a failed test in the summary."""
        (line,) = set(re.findall(rf"^FAILED {re.escape(test)} - (.*)$", self.output, re.MULTILINE))
        return line


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """In one worker: without another in its place, no further test would run."""
    folder = tmp_path_factory.mktemp("suite")
    for name, text in SUITE.items():
        (folder / name).write_text(textwrap.dedent(text))
    browser = folder / "bin" / "chromium"
    browser.parent.mkdir()
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    marker = f"hung-{os.getpid()}-{time.time_ns()}"
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "PATH": f"{browser.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPO),
        "VVT_TEST_CHROMIUM_SECONDS": str(BROWSER_SECONDS),
        VARIABLE: marker,
    }
    limits = ["--timeout", str(TIMEOUT_SECONDS), "-o", f"hard_limit_grace_seconds={GRACE_SECONDS}"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-n", "1", *limits]
    output, errors = folder / "output", folder / "errors"  # pipes would be held open by what is left
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        subprocess.run(command, cwd=folder, env=variables, stdout=stdout, stderr=stderr, timeout=300)
    left = processes_of(marker)
    names = [process.name() for process in left]
    for process in left:
        process.kill()
    return Session(output.read_text(), errors.read_text(), names)


@pytest.mark.long
def test_every_other_test_runs(session: Session) -> None:
    passed = re.findall(r"^PASSED (\S+)", session.output, re.MULTILINE)
    assert sorted(passed) == [
        "test_a_decoder.py::test_after",
        "test_a_decoder.py::test_before",
        "test_b_browser.py::test_after",
        "test_c_engine.py::test_after",
    ]


def test_a_decoder_that_never_returns_is_named_with_its_line(session: Session) -> None:
    test = "test_a_decoder.py::test_hung"
    assert f"crashed while running '{test}'" in session.output
    assert f"HUNG: {test} has not ended within {TIMEOUT_SECONDS + GRACE_SECONDS} s" in session.errors
    assert f"HUNG: {test}: ended with it: sleep" in session.errors
    assert re.search(r'test_a_decoder\.py", line \d+ in test_hung\b', session.errors)  # where its thread stood


def test_a_browser_that_never_answers_is_named(session: Session) -> None:
    assert "TimeoutExpired" in session.failure("test_b_browser.py::test_hung")
    assert re.search(rf"bin/chromium.*timed out after {BROWSER_SECONDS}\.0 seconds", session.output)


def test_an_engine_that_ignores_sigterm_is_named(session: Session) -> None:
    assert session.failure("test_c_engine.py::test_hung").startswith("Failed: Timeout")
    assert "Processes ended with the test" in session.output
    late = "test_c_engine.py::test_hung_to_the_end"  # started by a fixture, which waits for it once more
    assert f"crashed while running '{late}'" in session.output
    assert f"HUNG: {late}: ended with it: bash, sleep" in session.errors


def test_no_process_is_left(session: Session) -> None:
    assert session.left == []


@pytest.mark.parametrize("target", ["test", "test-fast", "test-recipes", "test-cluster"])
def test_make_runs_every_test_in_a_worker_that_can_be_replaced(target: str) -> None:
    dry = subprocess.run(["make", "-n", target], cwd=REPO, capture_output=True, text=True, timeout=60, check=True)
    commands = [line for line in dry.stdout.splitlines() if "pytest" in line]
    assert commands and all(" -n " in command for command in commands)
