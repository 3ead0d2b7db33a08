"""How natural outputs are read, beside a careful person's reading. `tests/grading/data/README.md` has the format.

`python -m pytest -k choices_corpus -q` prints the figures.
"""

import json
import string
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.grading.choices import chosen_option, grade_multiple_choice

DATA = Path(__file__).parent / "data"
CORPUS, BLIND = DATA / "choices_corpus.jsonl", DATA / "choices_blind.jsonl"
IN_THE_ANSWERS_PLACE = {"letter", "letter_text", "markup", "json"}


def outputs(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_choices_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*outputs(CORPUS), *outputs(BLIND)]
    read = [(row, chosen_option(row["answer"], row.get("options"))) for row in rows]
    meant = [(row, letter) for row, letter in read if row["reading"] is not None]
    missed = [row for row, letter in meant if letter is None]
    misread = [(row, letter) for row, letter in meant if letter not in (None, row["reading"])]
    accepted = [(row, letter) for row, letter in read if row["reading"] is None and letter is not None]
    with capsys.disabled():
        for name, members in (("corpus", outputs(CORPUS)), ("blind", outputs(BLIND))):
            ours = [row for row in members if row["reading"] is not None]
            num_read = sum(row not in missed for row in ours)
            print(f"\n{name}: {num_read} of {len(ours)} outputs that mean one option are read", end="")
        print(f"; {len(accepted)} of {len(rows) - len(meant)} that mean none or several are accepted")
    assert misread == []
    assert len(accepted) <= 0.01 * (len(rows) - len(meant)), accepted
    in_place = [row for row, _ in meant if row["kind"] in IN_THE_ANSWERS_PLACE]
    assert len([row for row in missed if row in in_place]) <= 0.01 * len(in_place), missed
    prose = [row for row, _ in meant if row["kind"] not in IN_THE_ANSWERS_PLACE]
    assert len([row for row in missed if row in prose]) <= 0.15 * len(prose), missed


def test_an_output_is_right_for_one_truth() -> None:
    for row in outputs(BLIND):
        options = row.get("options")
        letters = string.ascii_uppercase[: len(options)] if options else string.ascii_uppercase
        right = [letter for letter in letters if grade_multiple_choice(row["answer"], letter, options)]
        assert right == [letter for letter in [chosen_option(row["answer"], options)] if letter is not None]


def test_choices_corpus_is_large_and_spread_over_the_kinds() -> None:
    rows = outputs(CORPUS)
    assert len({(row["answer"], str(row.get("options"))) for row in rows}) == len(rows)
    kinds = [row["kind"] for row in rows]
    assert all(kinds.count(kind) >= 10 for kind in set(kinds))
    for row in rows:
        menu = string.ascii_uppercase[: len(row["options"])] if "options" in row else string.ascii_uppercase
        assert row["reading"] is None or row["reading"] in menu, row
