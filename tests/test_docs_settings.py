"""Tables of settings on the pages are those of the classes that hold them."""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docs" / "make_settings.py"
MADE = runpy.run_path(str(SCRIPT))


@dataclass(frozen=True)
class Base:
    first: int = 1000
    """Of the base."""
    second: str | None = None
    """Replaced
    below."""


@dataclass(frozen=True)
class Settings(Base):
    second: str | None = None
    """One | two,
    on two lines."""
    third: str = "word"
    """A word."""
    share: float = 0.5
    """A share."""


@pytest.mark.parametrize("page", MADE["PAGES"])
def test_tables_are_up_to_date(page: str) -> None:
    text = (SCRIPT.parent / page).read_text(encoding="utf-8")
    assert MADE["with_table"](text, MADE["PAGES"][page]) == text, "run python docs/make_settings.py"


@pytest.mark.parametrize("page", MADE["PAGES"])
def test_no_word_is_broken_at_the_end_of_a_line(page: str) -> None:
    """Lines of a meaning are joined by a space."""
    broken = [text for text in MADE["_meanings"](MADE["PAGES"][page]).values() if re.search(r"\w- \w", text)]
    assert broken == []


def test_a_table() -> None:
    page = "Before.\n\n<!-- settings: begin -->\nold\n<!-- settings: end -->\n\nAfter.\n"
    assert MADE["with_table"](page, Settings).splitlines()[4:9] == [
        "|---|---|---|",
        "| `first` | 1,000 | Of the base. |",
        "| `second` | none | One \\| two, on two lines. |",
        "| `third` | `word` | A word. |",
        "| `share` | 0.5 | A share. |",
    ]
