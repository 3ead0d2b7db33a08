"""docs/trust.md and docs/reliability.md: what they say is held by tests that exist, and by those here."""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.records.records import RecordWriter
from verl_video_tools.services.judge import CacheKey, VerdictCache

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "verl_video_tools"
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
OF_OWN_OBJECTS = {"rollout_and_reward.py"}
"""`vvt check-method` reads what it has written itself, in memory, to see whether a config survives it."""


def test_every_line_names_tests_that_exist() -> None:
    lines = [line for line in (REPO / "docs" / "trust.md").read_text().splitlines() if line.startswith("| ")][1:]
    for line in lines:
        named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", line)
        assert named, line
        for file, name in named:
            assert name in functions_in(file), f"{file} has no {name}"
    assert len(lines) >= 13


def test_what_a_run_survives_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", (REPO / "docs" / "reliability.md").read_text())
    assert named
    for file, name in named:
        assert name in functions_in(file), f"{file} has no {name}"


def functions_in(file: str) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse((REPO / file).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def loads_a_pickle(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in PICKLES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in PICKLES
    if not isinstance(node, ast.Call):
        return False
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if ast.unparse(node.func) == "torch.load":
        return keywords.get("weights_only") != "True"
    return keywords.get("allow_pickle", "False") != "False"


@pytest.mark.slow
def test_no_pickle_is_read() -> None:
    found = {
        path.name for path in PACKAGE.rglob("*.py") if any(map(loads_a_pickle, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == OF_OWN_OBJECTS


def keep_records(folder: Path) -> None:
    RecordWriter(folder).write(1, [{"step": 1}])


def keep_verdict(folder: Path) -> None:
    VerdictCache(folder).put(CacheKey("question", "truth", "answer", "prompt", "model"), AnswerLabel.CORRECT)


@pytest.mark.parametrize("keep", [keep_records, keep_verdict])
@pytest.mark.parametrize(("umask", "folder_mode", "file_mode"), [(0o077, 0o700, 0o600), (0o027, 0o750, 0o640)])
def test_what_a_run_keeps_follows_the_umask(
    tmp_path: Path, keep: Callable[[Path], None], umask: int, folder_mode: int, file_mode: int
) -> None:
    """Teams share these folders, so that they are no secret of their owner's, and nothing is open to everybody."""
    former = os.umask(umask)
    try:
        keep(tmp_path / "kept")
    finally:
        os.umask(former)
    paths = [tmp_path / "kept", *(tmp_path / "kept").rglob("*")]
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {True: folder_mode, False: file_mode}
