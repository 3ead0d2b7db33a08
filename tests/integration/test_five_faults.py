"""Five cells of the fault plan, which `make test` runs: a message, nothing left behind, every row seen once.

Two go by in one run, and three end one.

`make test-faults` runs all cells, and compares what is learnt with a run without faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chain import Chain, end_and_resume
from tests.faults.conftest import inputs
from tests.faults.plan import CHAIN, FAULTS, GOES_ON, Cell

__all__ = ["inputs"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def chain(output_dir: Path, inputs: dict[str, str]) -> Iterator[Chain]:
    chain = Chain(output_dir, "fault_five", inputs, reference=None)
    yield chain
    chain.close()


@pytest.mark.parametrize("name", CHAIN)
def test_a_run_goes_on_or_ends_with_a_message_and_the_same_command_resumes(name: str, chain: Chain) -> None:
    cell = Cell(*name.split(":"))
    if FAULTS[cell.fault].outcome == GOES_ON:
        chain.pass_by(cell)
        return
    result = end_and_resume(chain, cell)
    assert result.ended_seconds <= 300
