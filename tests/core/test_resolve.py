"""Names of registered parts, and Python paths of the user's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import UsageError

REGISTERED = {"decoder": "json:JSONDecoder", "gone": "json:Gone"}


def test_names_and_paths() -> None:
    assert resolve("decoder", REGISTERED, "reader") is json.JSONDecoder
    assert resolve("json:JSONEncoder", REGISTERED, "reader") is json.JSONEncoder
    assert resolve("os:path.join", REGISTERED, "reader") is os.path.join


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        resolve("encoder", REGISTERED, "reader")
    assert str(refused.value) == (
        "there is no reader 'encoder'; choose one of: decoder, gone, or name your own as module:Class"
    )


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:X", "AttributeError: module 'json' has no attribute 'X'"),
        ("gone", "AttributeError: module 'json' has no attribute 'Gone'"),
        (".json:X", "ValueError: invalid format"),
        (":X", "ValueError: invalid format"),
        ("half_written:X", "SyntaxError: "),
        ("failing:X", "ZeroDivisionError: division by zero"),
        ("missing_base:X", "ModuleNotFoundError: No module named 'no_such_base'"),
    ],
)
def test_what_cannot_be_imported_is_told_with_the_reason(
    spec: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "half_written.py").write_text("class X")
    (tmp_path / "failing.py").write_text("X = 1 / 0")
    (tmp_path / "missing_base.py").write_text("import no_such_base")
    with pytest.raises(UsageError) as refused:
        resolve(spec, REGISTERED, "reader")
    named = f"{spec!r} ({REGISTERED[spec]})" if spec in REGISTERED else repr(spec)
    assert f"the reader {named} cannot be imported: {reason}" in str(refused.value)
    advice = "the module was found, and raises this" if "SyntaxE" in reason or "ZeroD" in reason else "on PYTHONPATH"
    assert str(refused.value).endswith(advice)
