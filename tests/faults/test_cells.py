"""Each cell of the fault plan in real runs: the fault, then the same command again.

make test-faults                                   # those that have not passed in this state of the code
make test-faults CELLS="engine_core:generation"    # these; FRESH=1 runs what has passed again
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chain import Chain, end_and_resume
from tests.faults.check import check_struck
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


@pytest.fixture(scope="module")
def chain(output_dir: Path, inputs: dict[str, str], reference: Path) -> Iterator[Chain]:
    chain = Chain(output_dir, "fault_chain", inputs, reference)
    yield chain
    chain.close()


@pytest.mark.parametrize("cell", _cells(), ids=str)
def test_cell(cell: Cell, request: pytest.FixtureRequest) -> None:
    known = load().get(str(cell))
    if known and is_current(known) and os.environ.get("FRESH") != "1":
        pytest.skip(f"has passed at commit {known.commit}, and nothing that matters has changed; FRESH=1 runs it again")
    chain = request.getfixturevalue("chain")  # only now: where all cells are skipped, nothing has to run
    result = end_and_resume(chain, cell) if FAULTS[cell.fault].outcome == ENDS else _go_on(chain, cell)
    keep(cell, result)


def _go_on(chain: Chain, cell: Cell) -> Result:
    """A fault with which a run goes on to its last step."""
    chain.close()
    assert chain.reference is not None
    folder = chain.output_dir / f"fault_{cell.fault}_{cell.moment}"
    clear(folder)
    run = start(folder, NUM_STEPS, **chain.inputs)
    try:
        strike(run, PLANTED_STEP, cell.moment, plant_of(cell, chain.inputs["TRAIN_FILES"]))
    finally:
        run.kill()
        undo(folder)
    check_struck(run, cell)
    done = rollouts(folder)
    expected = {key: content for key, content in rollouts(chain.reference).items() if key[0] <= NUM_STEPS}
    assert done.keys() == expected.keys()
    if cell.fault == "video_gone":
        lost = {key for key, content in done.items() if content["trajectory"]["stop_reason"] == "video_error"}
        assert {step for step, *_ in lost} == {PLANTED_STEP}
        assert all(done[key]["advantage"] == 0.0 for key in lost)
        assert all(done[key] == expected[key] for key in done.keys() - lost if key[0] <= PLANTED_STEP)
    else:
        assert [key for key in done if done[key] != expected[key]] == []
        assert not different_weights(weights(folder, NUM_STEPS), weights(chain.reference, NUM_STEPS))
    return Result(round(run.ended_seconds, 1), round(run.seconds), None, commit())
