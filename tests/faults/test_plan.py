"""What keeps the fault plan and its page honest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.moments import MOMENTS
from tests.faults.plan import CELLS, FAULTS
from tests.faults.results import load, table

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_cells_are_in_every_moment_of_a_step() -> None:
    assert {cell.moment for cell in CELLS} == set(MOMENTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_that_says_nothing_does_not_pass(name: str) -> None:
    assert not re.search(FAULTS[name].says, "")


def test_the_page_shows_the_results() -> None:
    assert table(load()) in PAGE.read_text(encoding="utf-8"), (
        "put what `python -m tests.faults.results` prints into the section Fault plan of docs/reliability.md"
    )
