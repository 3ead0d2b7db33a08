"""Write the table of docs/loop-conformance.md: python docs/make_loop_conformance.py RESULTS.json ...

Each file is what `vvt check-loop --out` has written of one loop; `make test-loops` makes those of the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_video_tools.loop_check.table import markdown_table

PAGE = Path(__file__).parent / "loop-conformance.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def with_table(page: str, files: Sequence[Path]) -> str:
    """The page with the table of these results in the place of the one that it has."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    table = markdown_table([json.loads(file.read_text(encoding="utf-8")) for file in files])
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PAGE.write_text(
        with_table(PAGE.read_text(encoding="utf-8"), [Path(name) for name in sys.argv[1:]]), encoding="utf-8"
    )
