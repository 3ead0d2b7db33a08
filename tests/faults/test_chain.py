"""Some cells of the fault plan in a chain, which is cheaper than each by itself: each run resumes what the fault before
has left, does one step, and meets the next fault in the one after. Rows come in order, so that one that is lost or seen
twice shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.check import check_finished, check_struck
from tests.faults.compare import rollouts
from tests.faults.plan import CHAIN, Cell
from tests.faults.plant import plant_of
from tests.faults.run import RECIPE, FaultRun, clear, start, strike

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]

LAST_STEP = 2 * len(CHAIN) + 2
ROWS_PER_STEP, GROUP_SIZE = 2, 4
IN_ORDER = (*RECIPE, "data.shuffle=False")
STRUCK = [Cell(*name.split(":")) for name in CHAIN]


def saved_step(folder: Path) -> int:
    tracker = folder / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.exists() else 0


@pytest.fixture(scope="module")
def chain(output_dir: Path, inputs: dict[str, str]) -> list[FaultRun]:
    """The runs with the faults in order, and a last one without."""
    folder, runs = output_dir / "fault_chain", []
    clear(folder)
    for cell in STRUCK:
        run = start(folder, LAST_STEP, IN_ORDER, **inputs)
        runs.append(run)
        try:
            strike(run, saved_step(folder) + 2, cell.moment, plant_of(cell, folder))
        finally:
            run.kill()
    last_step = saved_step(folder) + 1
    last = start(folder, last_step, IN_ORDER, **inputs)
    runs.append(last)
    last.wait_for(f"{last_step} validation")
    last.look()
    last.finish()
    return runs


@pytest.mark.parametrize(("number", "cell"), list(enumerate(STRUCK)), ids=map(str, STRUCK))
def test_a_run_ends_with_a_message_and_leaves_nothing(chain: list[FaultRun], number: int, cell: Cell) -> None:
    check_struck(chain[number], cell)


def test_the_last_run_comes_to_its_end(chain: list[FaultRun]) -> None:
    check_finished(chain[-1])


def test_every_row_is_seen_once(chain: list[FaultRun]) -> None:
    folder = chain[-1].folder
    expected = {
        (step, row, session)
        for step in range(1, saved_step(folder) + 1)
        for row in range((step - 1) * ROWS_PER_STEP, step * ROWS_PER_STEP)
        for session in range(GROUP_SIZE)
    }
    assert len(expected) >= (len(STRUCK) + 1) * ROWS_PER_STEP * GROUP_SIZE
    assert set(rollouts(folder)) == expected
