"""How many natural outputs are read as a careful person reads them. `tests/core/data/README.md` tells the format.

`python -m pytest -k choices_corpus -q` prints the figures.
"""

import json
import string
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.choices import grade_multiple_choice

DATA = Path(__file__).parent / "data"
CORPUS, BLIND = DATA / "choices_corpus.jsonl", DATA / "choices_blind.jsonl"


def outputs(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def accepted_for(output: dict[str, Any]) -> list[str]:
    """The truths for which the grader finds the output right."""
    options = output.get("options")
    letters = string.ascii_uppercase[: len(options)] if options else string.ascii_uppercase
    return [letter for letter in letters if grade_multiple_choice(output["answer"], letter, options)]


@pytest.mark.parametrize(
    ("path", "least_read", "most_accepted"),
    # What has been reached: a rule that loses a single output is told.
    # Of the blind set one output is accepted that means none: it was at the only run, and no rule is changed for it.
    [(CORPUS, 1344, 0), (BLIND, 137, 1)],
    ids=["corpus", "blind"],
)
def test_choices_corpus(path: Path, least_read: int, most_accepted: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = outputs(path)
    meant = [row for row in rows if row["reading"] is not None]
    others = [row for row in rows if row["reading"] is None]
    missed = [(accepted_for(row), row) for row in meant if accepted_for(row) != [row["reading"]]]
    accepted = [(letters, row) for row in others if (letters := accepted_for(row))]
    num_read = len(meant) - len(missed)
    with capsys.disabled():
        print(
            f"\n{path.name}: {num_read} of {len(meant)} outputs that mean one option are read so "
            f"({100 * num_read / len(meant):.1f} %); "
            f"{len(accepted)} of {len(others)} that mean none or several are accepted"
        )
    assert len(accepted) <= most_accepted, accepted
    assert num_read >= least_read, missed


def test_choices_corpus_is_large_and_spread_over_the_kinds() -> None:
    rows = outputs(CORPUS)
    assert len(rows) >= 600
    assert len({(row["answer"], str(row.get("options"))) for row in rows}) == len(rows)
    kinds = [row["kind"] for row in rows]
    assert all(kinds.count(kind) >= 10 for kind in set(kinds))
    assert set(kinds) == {
        *("letter", "letter_text", "statement", "text", "markup", "json", "chinese", "korean", "japanese", "reasoning"),
        *("explanation", "hedge", "list", "refusal", "article", "negation", "conflict", "off_menu"),
    }
    for row in rows:
        menu = string.ascii_uppercase[: len(row["options"])] if "options" in row else string.ascii_uppercase
        assert row["reading"] is None or row["reading"] in menu, row
