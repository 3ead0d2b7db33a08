"""Past finds and a short round of each surface; `make fuzz MINUTES=10` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import __main__ as program
from tests.fuzz.rounds import REPO, run_apart, run_here, unique
from tests.fuzz.surface import SURFACES, load_surface

SHORT = {"turns": 1250, "rollouts": 175, "videos": 75, "judge": 5000, "rows": 600, "caches": 300, "bodies": 600}
"""Inputs of a short round: about a second of CPU each. Twice as many reach at most 5 % more lines of the package."""


@pytest.mark.parametrize("name", SURFACES)
def test_a_short_round_finds_nothing(name: str, tmp_path: Path) -> None:
    if name == "bodies":
        pytest.importorskip("openai", reason="the extra `judge` is not installed")
    if name == "videos":  # decoders are native code
        finds = run_apart(name, 0, 0, count=SHORT[name]).finds
    else:
        with load_surface(name, tmp_path) as surface:
            finds = run_here(surface, 0, 0, SHORT[name])
    assert not finds, "\n".join(f"{find.error}\n  {find.command}" for find in unique(finds))


def test_the_page_tells_what_was_run() -> None:
    """`python -m tests.fuzz --total` prints the table."""
    page = (REPO / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("<!-- fuzz: begin -->\n")[2].partition("\n<!-- fuzz: end -->")[0]
    assert table == program.totals(program.read_counts(program.COUNTS))
