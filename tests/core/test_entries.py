"""Entries by digest: one that is not what was kept under its name counts as absent, and heals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_video_tools.core.entries import EntryFolder


@pytest.mark.parametrize("damage", ["a word", "cut", "another's", "no object", "fewer fields", "empty"])
def test_a_damaged_entry_is_not_believed(tmp_path: Path, damage: str) -> None:
    folder, entry = EntryFolder(tmp_path), {"label": "incorrect", "why": None}
    folder.write("aa1", entry)
    assert folder.read("aa1") == entry
    (path,) = tmp_path.rglob("*.json")
    text = path.read_text()
    if damage == "another's":
        folder.write("bb2", {"label": "correct", "why": None})
        (tmp_path / "bb" / "bb2.json").replace(path)
    else:
        kept = json.loads(text)
        del kept["why"]
        path.write_text(
            {
                "a word": text.replace("incorrect", "correct"),  # which it holds
                "cut": text[:-3],
                "no object": "[]",
                "fewer fields": json.dumps(kept),
                "empty": "",
            }[damage]
        )
    assert folder.read("aa1") is None
    folder.write("aa1", entry)
    assert folder.read("aa1") == entry


def test_what_was_never_kept(tmp_path: Path) -> None:
    assert EntryFolder(tmp_path).read("aa1") is None
