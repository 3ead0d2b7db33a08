"""The fault plan itself: every cell is planted or says why not, and the page shows what has run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults import results
from tests.faults.moments import MOMENTS
from tests.faults.plan import CELLS, CHAIN, ENDS, FAULTS, GOES_ON
from tests.faults.results import Result, keep, load, table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_planted_in_every_moment_or_says_why_not(name: str) -> None:
    fault = FAULTS[name]
    assert fault.outcome in (ENDS, GOES_ON)
    assert set(fault.moments) <= set(MOMENTS)
    assert bool(fault.elsewhere) == (fault.moments != MOMENTS)
    for pattern in (fault.says, fault.target or ""):
        re.compile(pattern)
    assert not re.search(fault.says, ""), "an empty log must not do"


def test_processes_are_killed_in_every_moment() -> None:
    killed = [fault for fault in FAULTS.values() if fault.signal == "SIGKILL" and fault.target is not None]
    assert len(killed) >= 15
    assert all(fault.moments == MOMENTS for fault in killed)


def test_the_chain_has_five_cells() -> None:
    assert len(set(CHAIN)) >= 5
    assert set(CHAIN) <= {str(cell) for cell in CELLS}


def test_results_are_those_of_cells() -> None:
    kept = load()
    assert kept.keys() <= {str(cell) for cell in CELLS}
    for name, result in kept.items():
        ends = FAULTS[name.split(":")[0]].outcome == ENDS
        assert ends == (result.resumed_seconds is not None)
        waits = name.startswith("tracker_cut:")  # its plant waits for the end, to cut the file then
        assert (result.ended_seconds == 0) if waits else (0 < result.ended_seconds <= result.run_seconds)
        assert not ends or result.ended_seconds <= 300
        assert re.fullmatch(r"[0-9a-f]{10}(-dirty)?", result.commit)


def test_the_page_shows_the_results() -> None:
    assert table(load()) in (DOCS / "reliability.md").read_text(), (
        "put what `python -m tests.faults.results` prints into the section Fault plan of docs/reliability.md"
    )


def test_results_are_kept_in_the_order_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    result = Result(1.0, 2.0, None, "0123456789")
    for cell in (CELLS[5], CELLS[0]):
        keep(cell, result, path)
    assert list(load(path).items()) == [(str(CELLS[0]), result), (str(CELLS[5]), result)]


def test_a_result_is_current_until_what_matters_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = results._git("rev-list", "--max-parents=0", "HEAD").stdout.split()[0]
    if not first:
        pytest.skip("the history of the repository is not here")
    here = Result(1.0, 2.0, None, results._git("rev-parse", "HEAD").stdout.strip())
    monkeypatch.setattr(results, "RELEVANT", ("LICENSE",))
    assert results.is_current(here)
    monkeypatch.setattr(results, "RELEVANT", (".",))
    assert not results.is_current(Result(1.0, 2.0, None, first))
    assert not results.is_current(Result(1.0, 2.0, None, "0" * 10)), "a commit that is not here"
