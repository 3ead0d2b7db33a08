"""docs/compose.md: its tables are the code's, its example is the one of examples/compose."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.methods.compose.test_papers import DIFFERENCES
from verl_video_tools.methods.compose.composition import PACKAGED, PAPERS
from verl_video_tools.methods.compose.messages import NAMES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compose.md"


def test_its_tables_are_the_codes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = runpy.run_path(str(ROOT / "docs" / "make_compose.py"))["page"](text)
    assert made == text, "run python docs/make_compose.py"


def test_its_example_is_run_by_a_test() -> None:
    example = (ROOT / "examples" / "compose" / "longvt_search_ladder.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{example.strip()}\n```" in PAGE.read_text(encoding="utf-8")


def test_every_paper_and_message_is_on_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in DIFFERENCES:
        assert f"\n| `{name}` | " in text.partition("## The five papers")[2]
    assert set(DIFFERENCES) == set(PAPERS)
    assert all(f"`{name}`" in text for name in (*PACKAGED, *NAMES) if not name.endswith("_last"))
