"""Past finds and a short round of each surface; and that rounds find what is planted, and can be told again.

`make fuzz MINUTES=10` runs long ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import __main__ as program
from tests.fuzz import planted
from tests.fuzz.rounds import REPO, Find, run_apart, run_here, unique
from tests.fuzz.surface import CORPUS, SURFACES, load_surface

SHORT = {"turns": 2500, "rollouts": 350, "videos": 300, "judge": 20_000, "rows": 1200, "caches": 1200, "bodies": 1200}
"""Inputs of a short round: one to four seconds of CPU each."""


@pytest.mark.parametrize("name", SURFACES)
def test_a_short_round_finds_nothing(name: str, tmp_path: Path) -> None:
    if name == "bodies":
        pytest.importorskip("openai", reason="the extra `judge` is not installed")
        pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    if name == "videos":  # decoders are native code
        finds = run_apart(name, 0, 0, count=SHORT[name]).finds
    else:
        with load_surface(name, tmp_path) as surface:
            finds = run_here(surface, 0, 0, SHORT[name])
    assert not finds, "\n".join(f"{find.error}\n  {find.command}" for find in unique(finds))


@pytest.mark.parametrize("name", SURFACES)
def test_past_finds_say_what_they_were(name: str) -> None:
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in (CORPUS / name).glob("*.json")}
    assert found and all(set(one) == {"found", "case"} and one["found"].strip() for one in found.values())


def test_a_number_is_the_same_input_in_every_process(tmp_path: Path) -> None:
    with load_surface("turns", tmp_path) as surface:
        inputs = [surface.input(seed, 7) for seed in (0, 1)]
    command = [sys.executable, "-m", "tests.fuzz", "--surface", "turns", "--seed", "1", "--number", "7"]
    shown = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert json.loads(shown.stdout.rpartition("handled rightly")[0]) == inputs[1] != inputs[0]


def test_what_is_wrong_hangs_or_crashes_is_found_and_costs_itself() -> None:
    """In processes of their own: the round goes on behind each."""
    found = run_apart("planted", 0, 0, count=12, hard_limit_seconds=2.0, path=planted.PATH)
    assert [(find.number, find.place.partition(" at ")[0]) for find in found.finds] == [
        (planted.WRONG, "AssertionError"),
        (planted.HANGS, "no end within 2 s of CPU"),
        (planted.CRASHES, "the process was ended by signal 11"),
    ]
    assert (found.next_number, found.inputs) == (12, 9 + 1)  # the wrong one was handled, if not rightly


def test_rounds_add_up_and_a_find_ends_in_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SURFACES, "planted", planted.PATH)
    counts = tmp_path / "counts.json"

    def round_of(count: int) -> int:
        def short(name: str, seed: int, first: int, **_: Any) -> Any:
            return run_apart(name, seed, first, count=count, path=planted.PATH)

        monkeypatch.setattr(program, "run_apart", short)
        monkeypatch.setattr(sys, "argv", ["fuzz", "--surface", "planted", "--counts", str(counts)])
        return program.main()

    assert round_of(2) == 0
    assert round_of(3) == 1
    told = capsys.readouterr().out
    assert "AssertionError: the planted fault" in told
    assert "python -m tests.fuzz --surface planted --seed 0 --number 3" in told
    rounds = json.loads(counts.read_text())["planted"]["rounds"]
    assert [(one["first"], one["next"], one["inputs"], one["finds"]) for one in rounds] == [(0, 2, 2, 0), (2, 5, 3, 1)]
    monkeypatch.setattr(sys, "argv", ["fuzz", "--surface", "planted", "--number", "3"])
    with pytest.raises(AssertionError, match="the planted fault"):
        program.main()


def test_the_page_tells_what_was_run() -> None:
    """`python -m tests.fuzz --total` prints the table."""
    page = (REPO / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("<!-- fuzz: begin -->\n")[2].partition("\n<!-- fuzz: end -->")[0]
    assert table == program.totals(program.read_counts(program.COUNTS))


def test_finds_of_one_place_are_one() -> None:
    finds = [Find("turns", 0, number, "error", place) for number, place in enumerate("abab")]
    assert [find.number for find in unique(finds)] in ([0, 1], [1, 0])
