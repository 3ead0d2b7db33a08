"""What may import what: the contracts of import-linter (pyproject.toml), and the edges that it cannot see."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is not installed (extra `dev`)")

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "verl_video_tools"
LINT = Path(sys.executable).with_name("lint-imports")
UPWARD = (Path("core/tool.py"), "verl_video_tools.methods.toolkit.frames.most_similar")
"""The one name in a string that points upwards: a registered name stands for a function that decodes frames."""


def copy_of_package(folder: Path) -> Path:
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("*.safetensors", "__pycache__"))
    shutil.copy(REPO / "pyproject.toml", folder)
    return folder / PACKAGE.name


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [str(LINT), "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_contracts_hold(tmp_path: Path) -> None:
    copy_of_package(tmp_path)
    found = lint(tmp_path)
    assert found.returncode == 0, found.stdout


def test_wrong_imports_break_every_contract(tmp_path: Path) -> None:
    """A contract that names a module which has moved would hold whatever is imported."""
    wrong = {
        "core/frames.py": "from verl_video_tools.video import Video",
        "methods/longvt/method.py": "from verl_video_tools.methods.framemind import FrameMind",
        "rollout/episode.py": "import ray",
        "data/parquet.py": "import tests.row_files",
        "core/trajectory.py": "from verl_video_tools.core import frames",
    }
    package = copy_of_package(tmp_path)
    for module, line in wrong.items():
        path = package / module
        path.write_text(f"{path.read_text()}\n\ndef _wrong() -> None:\n    {line}\n")
    found = lint(tmp_path)
    assert found.returncode == 1, found.stdout
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert len(contracts) == 5 and found.stdout.count(" BROKEN") == len(contracts), found.stdout


def named_modules(path: Path) -> Iterator[str]:
    """Modules, and names in them, that whole strings of a file name: tables of methods and formats, what verl loads by
    name, what the hook after verl's own imports brings in."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.removeprefix("pkg://")
            if re.fullmatch(r"verl_video_tools(\.\w+)+(:\w+)?", text):
                yield text.replace(":", ".")


def is_there(name: str) -> bool:
    parent, _, last = name.rpartition(".")
    if find_spec(parent) is None:
        return False
    if re.search(rf"^(class|(async )?def) {last}\b", source(parent), re.MULTILINE):
        return True
    return find_spec(name) is not None


def source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text()


@pytest.mark.slow
def test_names_in_strings_point_downwards_too() -> None:
    """import-linter sees import statements alone."""
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rank = {part: number for number, row in enumerate(contracts[0]["layers"]) for part in row.split(" | ")}
    edges = [
        (path.relative_to(PACKAGE), name) for path in sorted(PACKAGE.rglob("*.py")) for name in named_modules(path)
    ]
    assert len(edges) > 20
    assert [edge for edge in edges if not is_there(edge[1])] == []
    edges.remove(UPWARD)
    of_file = {path: rank[path.parts[0].removesuffix(".py")] for path, _ in edges}
    assert [(path, name) for path, name in edges if rank[name.split(".")[1]] < of_file[path]] == []


def test_only_tests_of_benchmarks_import_them() -> None:
    own = {"benchmarks", "gpu"}  # tests/gpu are the benchmarks' bodies in small
    for path in REPO.glob("tests/**/*.py"):
        if path.relative_to(REPO / "tests").parts[0] not in own:
            assert not re.search(r"^\s*(from|import) benchmarks\b", path.read_text(), re.MULTILINE), path
