"""docs/cli.md is what the commands are now, and says something of each of their parameters."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from verl_video_tools.cli.main import COMMANDS, DATA_COMMANDS

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_is_that_of_the_commands() -> None:
    made = runpy.run_path(str(DOCS / "make_cli_reference.py"))["page"]()
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made, "run python docs/make_cli_reference.py"


def test_every_command_and_parameter_is_explained() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## vvt (.+)$", text, flags=re.MULTILINE)
    assert sorted(headings) == sorted([*COMMANDS, *(f"data {name}" for name in DATA_COMMANDS)])
    rows = re.findall(r"^\| `(.+?)` \|(?: .*? \|)? (.*) \|$", text, flags=re.MULTILINE)
    assert len(rows) > 200
    assert [name for name, meaning in rows if not re.search(r"\w", meaning)] == []
