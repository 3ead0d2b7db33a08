"""docs/trust.md: each of its lines is held by tests that exist, and by those here."""

from __future__ import annotations

import ast
import re
import stat
from pathlib import Path

import pytest

from verl_video_tools.video.file_locks import StripedLocks
from verl_video_tools.video.frame_store import FrameStore

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "verl_video_tools"
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
OF_CHECKPOINTS = {"reshard_checkpoint.py"}
"""verl writes a run's own checkpoints as pickles, and reads them so."""


def test_every_line_names_tests_that_exist() -> None:
    lines = [line for line in (REPO / "docs" / "trust.md").read_text().splitlines() if line.startswith("| ")][1:]
    for line in lines:
        named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", line)
        assert named, line
        for file, name in named:
            functions = {
                node.name
                for node in ast.walk(ast.parse((REPO / file).read_text()))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name in functions, f"{file} has no {name}"
    assert len(lines) >= 10


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


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import pickle", True),
        ("from cloudpickle import loads", True),
        ("torch.load(path)", True),
        ("torch.load(path, weights_only=True)", False),
        ("np.load(path, allow_pickle=True)", True),
        ("np.load(path)", False),
    ],
)
def test_the_reader_knows_what_loads_a_pickle(code: str, expected: bool) -> None:
    assert any(map(loads_a_pickle, ast.walk(ast.parse(code)))) == expected


def test_no_pickle_is_read_but_checkpoints() -> None:
    found = {
        path.name for path in PACKAGE.rglob("*.py") if any(map(loads_a_pickle, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == OF_CHECKPOINTS


def test_folders_of_frames_are_their_owners(tmp_path: Path) -> None:
    FrameStore(tmp_path / "store", 1 << 20)
    StripedLocks(tmp_path / "store" / "locks")
    for folder in ("store/frames", "store/incoming", "store/locks"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700, folder
