"""A pytest plugin: a test that hangs costs itself and no other, whatever it hangs in.

pytest-timeout raises an exception in the test. Native code that never returns does not notice, and a teardown that
waits for a stuck process has no timer any more. So a process of its own (`hard_limit_process`) knows which test runs.
`hard_limit_grace_seconds` after the test's timeout it names the test, lets Python print where its threads stand, and
ends the process with all that it has started. pytest-xdist then counts the test as failed and goes on with a new
worker: every make target runs under it. Without it the session ends there.

A test that pytest-timeout has ended leaves nothing running either: what it has started in the phase that took too long
is killed; what is older, fixtures may still need, and it goes when the session ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process_trees import descendants_of, kill, started_since

PROGRAM = Path(__file__).with_name("hard_limit_process.py")
GRACE = "hard_limit_grace_seconds"
TIMEOUT = "Timeout (>"
"""How the failures of pytest-timeout begin."""


class HardLimit:
    """The watching process of this one.

    Args:
        grace_seconds: beyond a test's timeout.
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        # In a session of its own: Ctrl-C is pytest's.
        command = [sys.executable, str(PROGRAM), str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self._suspects: list[psutil.Process] = []

    def watch(self, test: str, timeout_seconds: float) -> None:
        self._tell(test, timeout_seconds + self._grace_seconds)

    def rest(self) -> None:
        self._tell("", 0.0)

    def close(self) -> None:
        """End the watching, not by closing its standard input, which forked processes may hold open."""
        kill(self._suspects)
        self._process.kill()
        self._process.communicate()

    def _tell(self, test: str, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([test, seconds]).encode() + b"\n")
        self._process.stdin.flush()

    # ----------------------------------------------------------------------------------------------------------- hooks

    @pytest.hookimpl(wrapper=True, optionalhook=True)  # of pytest-timeout
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> Generator[None, object, object]:
        self.watch(item.nodeid, settings.timeout)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self.rest()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and str(call.excinfo.value).startswith(TIMEOUT):
            others = [process for process in descendants_of(os.getpid()) if process.pid != self._process.pid]
            young = started_since(others, call.start)
            self._suspects += [process for process in others if process not in young]
            if names := kill(young):
                report.sections.append(("Processes ended with the test", ", ".join(names)))
        return report

    def pytest_enter_pdb(self) -> None:
        self.rest()

    def pytest_unconfigure(self) -> None:
        self.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(GRACE, "How long a test may outlive its timeout before its process is ended.", default="30")


def pytest_configure(config: pytest.Config) -> None:
    """Before any output is captured: the process has to reach the terminal."""
    distributes = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not distributes:  # the process that hands out tests runs none
        config.pluginmanager.register(HardLimit(float(config.getini(GRACE))), "hard-limit")
