"""One run of the fault plan (`tests/faults`) that meets a fault in one moment after another.

It goes on without a video and while records cannot be written. It ends with a message, and leaves nothing behind, when
vLLM's engine, the driver, or a storage unit of the queue is killed. The same command then resumes, and every row is
seen once. `make test-faults` runs all cells of the plan, and compares what is learnt with a run without faults. Part of
`make test-long`: faults of video, judge and engine that a run survives are also planted by `test_planted_faults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chain import Chain, end_and_resume
from tests.faults.conftest import inputs
from tests.faults.plan import FAULTS, GOES_ON, Cell

__all__ = ["inputs"]

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

CELLS = (
    "video_gone:generation",
    "records_fail:update",
    "engine_core:weight_sync",
    "driver:validation",
    "storage_unit:checkpoint",
)


@pytest.fixture(scope="module")
def chain(output_dir: Path, inputs: dict[str, str]) -> Iterator[Chain]:
    chain = Chain(output_dir, "fault_chain_of_tests", inputs, reference=None)
    yield chain
    chain.close()


@pytest.mark.parametrize("name", CELLS)
def test_a_run_goes_on_or_ends_with_a_message_and_the_same_command_resumes(name: str, chain: Chain) -> None:
    cell = Cell(*name.split(":"))
    if FAULTS[cell.fault].outcome == GOES_ON:
        chain.pass_by(cell)
        return
    result = end_and_resume(chain, cell)
    assert result.ended_seconds <= 300
