"""What has to hold once a run of the fault plan is over."""

from __future__ import annotations

import re

from tests.faults.plan import ENDS, FAULTS, Cell
from tests.faults.run import FaultRun


def check_struck(run: FaultRun, cell: Cell) -> None:
    """It has ended, or gone on, as the plan says; with the message, and nothing left behind."""
    fault = FAULTS[cell.fault]
    _check_end(run, fault.says, fails=fault.outcome == ENDS)


def check_finished(run: FaultRun, says: str = "") -> None:
    """It has come to its last step, and has left nothing behind."""
    _check_end(run, says, fails=False)


def _check_end(run: FaultRun, says: str, fails: bool) -> None:
    assert not run.left, f"left behind: {run.left}; see {run.log_path}"
    assert (run.returncode != 0) == fails, f"exit code {run.returncode}; end of its output:\n{run.log[-6000:]}"
    assert re.search(says, run.log), f"nothing matches {says!r}; end of its output:\n{run.log[-6000:]}"
