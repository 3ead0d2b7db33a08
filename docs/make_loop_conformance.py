"""Write the tables of docs/loop-conformance.md: python docs/make_loop_conformance.py [RESULTS.json ...]

Faults and checks come from the code. Each file is what `vvt check-loop --out` has written of one loop; `make
test-loops` makes those of the page. Without files the table of results stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_video_tools.loop_check.audit import sentences
from verl_video_tools.loop_check.faults import TOLD
from verl_video_tools.loop_check.table import markdown_table

PAGE = Path(__file__).parent / "loop-conformance.md"


def with_table(page: str, files: Sequence[Path]) -> str:
    """The page with the table of these results in the place of the one that it has."""
    return _with(page, "table", markdown_table([json.loads(file.read_text(encoding="utf-8")) for file in files]))


def with_sentences(page: str) -> str:
    """The page with the faults and checks of the code."""
    page = _with(page, "faults", _rows("fault", "what is wrong", dict(TOLD)))
    return _with(page, "checks", _rows("check", "what must hold", dict(sentences())))


def _with(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def _rows(name: str, meaning: str, told: Mapping[str, str]) -> str:
    return "\n".join([f"| {name} | {meaning} |", "|---|---|", *(f"| `{key}` | {text} |" for key, text in told.items())])


if __name__ == "__main__":
    text = with_sentences(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(text, [Path(name) for name in sys.argv[1:]]) if sys.argv[1:] else text, encoding="utf-8")
