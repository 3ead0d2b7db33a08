"""The page on conformance runs, against the code."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from tests.loop_check.hand_made import context, rollout
from tests.loop_check.test_audit import shifted
from verl_video_tools.loop_check.audit import audit, sentences
from verl_video_tools.loop_check.faults import TOLD
from verl_video_tools.loop_check.plant import NUM_CLEAN
from verl_video_tools.loop_check.table import results

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "loop-conformance.md").read_text(encoding="utf-8")


def table(section: str) -> dict[str, str]:
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, flags=re.MULTILINE))


def test_faults_and_checks_are_those_of_the_code() -> None:
    assert table("Faults") == dict(TOLD)
    assert table("Checks") == dict(sentences())
    made = runpy.run_path(str(DOCS / "make_loop_conformance.py"))["with_sentences"](PAGE)
    assert made == PAGE, "run python docs/make_loop_conformance.py"


def test_a_round_of_faults() -> None:
    assert f"data.train_batch_size={NUM_CLEAN + len(TOLD) - 1} " in PAGE


def test_the_table_is_written_where_it_belongs(tmp_path: Path) -> None:
    with_table = runpy.run_path(str(DOCS / "make_loop_conformance.py"))["with_table"]
    file = tmp_path / "results.json"
    found = results(audit([rollout(uid="clean"), shifted(1)], context()), ["my_loop"], 1e-4)
    file.write_text(json.dumps(found))
    page = with_table(PAGE, [file])
    assert "| mask_off_by_one | 1 of 1: `mask`" in page
    assert with_table(page, [file]) == page, "once more changes nothing"
    assert page.split("<!-- table: begin -->")[0] == PAGE.split("<!-- table: begin -->")[0]
    assert page.split("<!-- table: end -->")[1] == PAGE.split("<!-- table: end -->")[1]
