"""Each cell of the fault plan in real runs: the fault in the second step, then the same command again.

make test-faults                                   # those that have not passed in this state of the code
make test-faults CELLS="engine_core:generation"    # these; FRESH=1 runs what has passed again
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.check import check_finished, check_struck
from tests.faults.compare import different_weights, rollouts, weights
from tests.faults.plan import CELLS, ENDS, FAULTS, NUM_STEPS, PLANTED_STEP, Cell
from tests.faults.plant import plant_of, undo
from tests.faults.results import Result, commit, is_current, keep, load
from tests.faults.run import clear, start, strike

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
CHOSEN = os.environ.get("CELLS", "").split()


def _cells() -> list[Cell]:
    unknown = set(CHOSEN) - {str(cell) for cell in CELLS}
    assert not unknown, f"CELLS names no cells of the plan: {sorted(unknown)}"
    return [cell for cell in CELLS if not CHOSEN or str(cell) in CHOSEN]


@pytest.mark.parametrize("cell", _cells(), ids=str)
def test_cell(cell: Cell, output_dir: Path, inputs: dict[str, str], reference: Path) -> None:
    known = load().get(str(cell))
    if known and is_current(known) and os.environ.get("FRESH") != "1":
        pytest.skip(f"has passed at commit {known.commit}, and nothing that matters has changed; FRESH=1 runs it again")
    fault = FAULTS[cell.fault]
    folder = output_dir / f"fault_{cell.fault}_{cell.moment}"
    clear(folder)
    environment = {**inputs, **dict(fault.environment)}
    run = start(folder, NUM_STEPS, **environment)
    try:
        strike(run, PLANTED_STEP, cell.moment, plant_of(cell, reference))
    finally:
        run.kill()
        undo(folder)
    check_struck(run, cell)
    resumed_seconds = None
    if fault.outcome == ENDS:
        resumed = start(folder, NUM_STEPS, **environment)
        resumed.wait_for(f"{NUM_STEPS} validation")
        resumed.look()
        resumed.finish()
        check_finished(resumed, fault.resumed_says)
        resumed_seconds = round(resumed.seconds)
    _check_work(cell, folder, reference)
    keep(cell, Result(round(run.ended_seconds, 1), round(run.seconds), resumed_seconds, commit()))


def _check_work(cell: Cell, folder: Path, reference: Path) -> None:
    """Every rollout recorded once and as in the run without a fault, and the same weights, bit for bit."""
    done, expected = rollouts(folder), rollouts(reference)
    assert done.keys() == expected.keys()
    if cell.fault == "video_gone":
        lost = {key for key, content in done.items() if content["trajectory"]["stop_reason"] == "video_error"}
        assert {step for step, *_ in lost} == {PLANTED_STEP}
        assert all(done[key]["advantage"] == 0.0 for key in lost)
        assert all(done[key] == expected[key] for key in done.keys() - lost if key[0] <= PLANTED_STEP)
        return
    assert [key for key in done if done[key] != expected[key]] == []
    assert not different_weights(weights(folder, NUM_STEPS), weights(reference, NUM_STEPS))
