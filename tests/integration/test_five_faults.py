"""Five cells of the fault plan, which `make test` runs: a message, nothing left behind, every row seen once.

`make test-faults` runs all cells, and compares what is learnt with a run without faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chain import Chain, end_and_resume
from tests.faults.conftest import inputs
from tests.faults.plan import CHAIN, Cell

__all__ = ["inputs"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def chain(output_dir: Path, inputs: dict[str, str]) -> Iterator[Chain]:
    chain = Chain(output_dir, "fault_five", inputs, reference=None)
    yield chain
    chain.close()


@pytest.mark.parametrize("name", CHAIN)
def test_a_run_ends_with_a_message_and_the_same_command_resumes(name: str, chain: Chain) -> None:
    result = end_and_resume(chain, Cell(*name.split(":")))
    assert result.ended_seconds <= 300
