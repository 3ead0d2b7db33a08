"""The table of faults fits the code, and what plants them tells a fault that is noticed from one that is not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import report, run
from tests.mutants.table import Mutant, read_table, table_errors

TESTED = ("tests/test_numbers.py::test_largest",)
KILLED = Mutant("numbers", "K", "verl_video_tools/numbers.py", "return max", "return min", "", TESTED)
SURVIVES = Mutant("numbers", "S", "verl_video_tools/numbers.py", "> 0", ">= 0", "Zero is positive.", TESTED)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package, tests = tmp_path / "verl_video_tools", tmp_path / "tests"
    package.mkdir()
    tests.mkdir()
    package.joinpath("__init__.py").touch()
    package.joinpath("numbers.py").write_text(
        "def largest(numbers):\n    return max(numbers)\n\n\ndef is_positive(number):\n    return number > 0\n"
    )
    tests.joinpath("test_numbers.py").write_text(
        "from verl_video_tools.numbers import is_positive, largest\n\n\n"
        "def test_largest():\n    assert largest([1, 2]) == 2\n    assert is_positive(1)\n"
    )
    subprocess.check_call(["git", "init", "--quiet", tmp_path])
    return tmp_path


def test_table_fits_the_code() -> None:
    assert table_errors(read_table()) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"file": "verl_video_tools/moved.py"}, "there is no file verl_video_tools/moved.py"),
        ({"old": "return sum"}, "0 times"),
        ({"old": "return"}, "2 times"),
        ({"new": "return max"}, "`new` is `old`"),
        ({"tests": ()}, "no tests are named"),
        ({"tests": ("tests/test_moved.py",)}, "there is no file tests/test_moved.py"),
        ({"tests": ("tests/test_numbers.py::test_smallest[1]",)}, "has no test test_smallest"),
    ],
)
def test_errors_of_an_entry(project: Path, change: dict, error: str) -> None:
    (told,) = table_errors([replace(KILLED, **change)], project)
    assert error in told


def test_ids_are_unique(project: Path) -> None:
    assert table_errors([KILLED, SURVIVES], project) == []
    (told,) = table_errors([KILLED, replace(SURVIVES, id="K")], project)
    assert told == "K: 2 entries have this id"


def test_killed_and_surviving_mutants(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    before = project.joinpath("verl_video_tools", "numbers.py").read_text()
    outcomes = {outcome.mutant.id: outcome for outcome in run(project, [KILLED, SURVIVES], jobs=1)}
    assert {name: outcome.verdict for name, outcome in outcomes.items()} == {"K": "killed", "S": "survived"}
    assert "assert 1 == 2" in outcomes["K"].message
    assert "numbers             2       1   50.0%" in report([*outcomes.values()])
    assert project.joinpath("verl_video_tools", "numbers.py").read_text() == before


def test_tests_have_to_pass_without_a_fault(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.joinpath("tests", "test_numbers.py").write_text("def test_largest():\n    raise ValueError\n")
    with pytest.raises(SystemExit, match="fail without any fault"):
        next(run(project, [KILLED], jobs=1))
