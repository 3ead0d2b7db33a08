"""The documentation stays short: a bound for the hand-written words of all pages, and for the README.

    python -m tests.test_docs_words

prints the words of each page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
MAX_WORDS = 24_998
MAX_README_LINES = 120

GENERATED = re.compile(r"<!-- ([\w-]+)(?:: begin)? -->\n.*?<!-- (?:\1: end|end of \1|end) -->", re.DOTALL)
"""What a program writes into a page; see `docs/make_*.py` and the benchmarks."""
GENERATED_PAGE = "<!-- Written by "


def num_words(page: str) -> int:
    """Words of text and tables: what holds a letter, outside code, generated parts and addresses of links."""
    text = GENERATED.sub("", page.partition(GENERATED_PAGE)[0])
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)\s]+\)", "]", re.sub(r"`(?:[^`\n]|\n(?!\n))+`", "", text))
    return sum(bool(re.search(r"[^\W\d_]", word)) for word in text.split())


def words_of_pages() -> dict[str, int]:
    return {
        str(path.relative_to(DOCS)): num_words(path.read_text(encoding="utf-8")) for path in sorted(DOCS.rglob("*.md"))
    }


def test_pages_are_short() -> None:
    pages = words_of_pages()
    longest = sorted(pages, key=pages.__getitem__, reverse=True)[:5]
    assert sum(pages.values()) <= MAX_WORDS, f"shorten a page, the longest are {longest}"


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text(encoding="utf-8").splitlines()) < MAX_README_LINES


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("# Two words\n", 2),
        ("| one | 2.5 | - |\n|---|---|---|\n", 1),
        ("`not counted` one `nor` two\n", 2),
        ("one `not\ncounted` two `nor` three\n", 3),
        ("a lone ` mark\n\nand ` another\n", 5),
        ("[one](some/long-address.md#with-words) two\n", 2),
        ("one\n\n```bash\nnot counted\n```\n\ntwo\n", 2),
        ("one\n<!-- table: begin -->\nnot counted\n<!-- table: end -->\ntwo\n", 2),
        ("# One\n\n<!-- Written by a program -->\n\nnot counted\n", 1),
        ("one\n<!-- soak -->\n\nnot counted\n<!-- end of soak -->\ntwo\n", 2),
        ("one\n<!-- tools -->\n\nnot counted\n\n<!-- end -->\n\ntwo\n\n<!-- terms -->\nnot\n<!-- end -->\n", 2),
    ],
)
def test_what_is_counted(page: str, count: int) -> None:
    assert num_words(page) == count


if __name__ == "__main__":
    for name, words in words_of_pages().items():
        print(f"{words:6,} {name}")
    print(f"{sum(words_of_pages().values()):6,} in all")
