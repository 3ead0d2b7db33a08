"""docs/compose.md: its example is that of examples/compose, and every part is on it with its keys."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from verl_video_tools.core.config import resolve
from verl_video_tools.methods.compose.composition import MESSAGES, PACKAGED, PLANS, TOOLS
from verl_video_tools.methods.compose.parts import TERMS, Term

ROOT = Path(__file__).parents[3]
OF_EVERY_TERM = {own.name for own in fields(Term)}
PAGE = (ROOT / "docs" / "compose.md").read_text(encoding="utf-8")


def test_its_example_is_run_by_a_test() -> None:
    example = (ROOT / "examples" / "compose" / "longvt_search_ladder.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{example.strip()}\n```" in PAGE


def test_every_part_is_on_it_with_its_keys() -> None:
    parts = {name: entry["class"] for name, entry in TOOLS.items()} | PLANS | TERMS
    for name in parts:
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |") and line.count(" | ") == 2]
        keys = {own.name for own in fields(resolve(name, parts, "part"))} - {"compat"} - OF_EVERY_TERM
        assert not [key for key in keys if f"`{key}`" not in line and f"`{key}: " not in line], line
    assert all(f"`{name}`" in PAGE for name in (*PACKAGED, *MESSAGES, *OF_EVERY_TERM))
