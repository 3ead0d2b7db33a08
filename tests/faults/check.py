"""What has to hold once a run of the fault plan is over."""

from __future__ import annotations

import re

from tests.faults.plan import ENDS, FAULTS, Cell
from tests.faults.run import FaultRun


def check_struck(run: FaultRun, cell: Cell) -> None:
    """It has ended, or gone on to its last step, as the plan says; with the message, and nothing left behind."""
    fault = FAULTS[cell.fault]
    assert not run.left, f"left behind: {run.left}; see {run.log_path}"
    fails = fault.outcome == ENDS
    assert (run.returncode != 0) == fails, f"exit code {run.returncode}; end of its output:\n{run.log[-6000:]}"
    check_says(run, fault.says)


def says(run: FaultRun, pattern: str) -> bool:
    return re.search(pattern, run.log) is not None


def check_says(run: FaultRun, pattern: str) -> None:
    """It has said this by now."""
    assert says(run, pattern), f"nothing matches {pattern!r}; end of its output:\n{run.log[-6000:]}"
