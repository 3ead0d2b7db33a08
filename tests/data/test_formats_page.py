"""docs/formats.md says what the readers' docstrings say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from verl_video_tools.data.formats.training_sets import SOURCE_NAMES

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_that_of_the_readers() -> None:
    made = runpy.run_path(str(DOCS / "make_formats.py"))["page"]()
    assert (DOCS / "formats.md").read_text(encoding="utf-8") == made, "run python docs/make_formats.py"
    assert re.findall(r"^## (.+)$", made, flags=re.MULTILINE) == ["table", *SOURCE_NAMES]
