"""What has to hold once a run of the fault plan is over."""

from __future__ import annotations

import re
import time

from tests.faults.plan import ENDS, FAULTS, Cell
from tests.faults.run import FaultRun


def check_struck(run: FaultRun, cell: Cell) -> None:
    """It has ended, or gone on to its last step, as the plan says; with the message, and nothing left behind."""
    fault = FAULTS[cell.fault]
    assert not run.left, f"left behind: {run.left}; see {run.log_path}"
    fails = fault.outcome == ENDS
    assert (run.returncode != 0) == fails, f"exit code {run.returncode}; end of its output:\n{run.log[-6000:]}"
    check_says(run, fault.says)


def wait_until_it_says(run: FaultRun, pattern: str) -> None:
    """Of a run that goes on: Ray hands lines on a second or two after they were printed."""
    end = time.monotonic() + 60.0
    while not re.search(pattern, run.log) and run.process.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    check_says(run, pattern)


def check_says(run: FaultRun, pattern: str) -> None:
    """It has said this by now."""
    assert re.search(pattern, run.log), f"nothing matches {pattern!r}; end of its output:\n{run.log[-6000:]}"
