"""The harness of the fault plan, on a command that takes no stack: what it strikes, and what it finds left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.run import FaultRun, send, start, strike

COMMAND = """
import os, subprocess, sys, tempfile, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *arguments: None
kind, victim = sys.argv[1], [sys.executable, "-c", "import time; time.sleep(600) # victim"]
child = subprocess.Popen(victim)
if kind == "leaves":
    segment = shared_memory.SharedMemory(create=True, size=64)
    tempfile.mkstemp(prefix="left-")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600) # stays"], start_new_session=True)
def mark(text):
    open(os.environ["VVT_TEST_MOMENTS"], "a").write(text + "\\n")
mark("1 validation")
time.sleep(0.3)
mark("2 update")
print("RUN ENDED: lost victim", child.wait(), flush=True)
if kind == "hangs":
    time.sleep(600)
sys.exit(1)
"""


@pytest.fixture
def struck(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FaultRun:
    monkeypatch.setattr("tests.faults.run.END_LIMIT_SECONDS", 3.0)
    run = start(tmp_path / "run", 2, [sys.executable, "-c", COMMAND, request.param])
    strike(run, 2, "update", send("victim$", "SIGKILL"))
    return run


@pytest.mark.parametrize("struck", ["ends"], indirect=True)
def test_a_run_that_ends_leaves_nothing(struck: FaultRun) -> None:
    assert "RUN ENDED: lost victim -9" in struck.log
    assert struck.returncode == 1
    assert struck.left == []
    assert struck.ended_seconds <= struck.seconds


@pytest.mark.slow
@pytest.mark.parametrize("struck", ["leaves"], indirect=True)
def test_what_a_run_leaves_behind_is_found(struck: FaultRun) -> None:
    assert [text.split()[0] for text in struck.left] == ["process", "shared", "temporary"]
    assert "stays" in struck.left[0]
    for name in (text.split()[-1] for text in struck.left if text.startswith("shared")):
        Path("/dev/shm", name).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("struck", ["hangs"], indirect=True)
def test_a_run_that_hangs_is_found(struck: FaultRun) -> None:
    assert any(text.startswith("process") for text in struck.left)
    assert struck.returncode is None
