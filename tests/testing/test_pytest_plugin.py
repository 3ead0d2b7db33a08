"""`method_tests`, in a package of somebody else's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from verl_video_tools.testing.run import PROPERTIES

REPO = Path(__file__).parents[2]
PLUGIN = "verl_video_tools.testing.pytest_plugin"

METHOD = """
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.direct import Direct


@dataclass(frozen=True, kw_only=True)
class Theirs(Direct):
    name: ClassVar[str] = "theirs"
"""
TESTS = """
from their_method import Theirs
from verl_video_tools.testing.pytest_plugin import method_tests

test_theirs = method_tests(Theirs)
test_by_path = method_tests("their_method:Theirs", settings={"initial_frames": 4})
"""
FAULTY = """
    initial_frames: int = 1000
"""


def run_tests(folder: Path, method: str) -> subprocess.CompletedProcess[str]:
    (folder / "their_method.py").write_text(method)
    (folder / "test_theirs.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    entry = [] if _is_installed() else ["-p", PLUGIN]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *entry, str(folder)],
        cwd=folder,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def _is_installed() -> bool:
    """Whether the environment knows the entry point; one that was installed before there was any does not."""
    from importlib.metadata import entry_points

    return any(point.value == PLUGIN for point in entry_points(group="pytest11"))


def test_it_is_an_entry_point_that_exists() -> None:
    points = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["pytest11"] == {"verl_video_tools": PLUGIN}


def test_importing_it_imports_no_heavy_library() -> None:
    """It is imported whenever pytest starts."""
    program = f"import sys, {PLUGIN}; print({{'numpy', 'torch', 'av', 'verl'}} & sys.modules.keys())"
    environment = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "set()"


@pytest.mark.long
def test_a_test_for_each_property(tmp_path: Path) -> None:
    made = run_tests(tmp_path, METHOD)
    assert made.returncode == 0, made.stdout + made.stderr
    last = made.stdout.splitlines()[-1]
    # An editable installation has a warning as well: Python has imported its hook before pytest starts.
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (\w+)", last.split(" in ")[0])}
    assert counts.keys() <= {"passed", "skipped", "warning"}
    passed, skipped = counts["passed"], counts["skipped"]
    assert passed + skipped == 2 * len(PROPERTIES) and passed > skipped


@pytest.mark.long
def test_a_property_that_fails_says_what_to_do(tmp_path: Path) -> None:
    made = run_tests(tmp_path, METHOD + FAULTY)
    assert made.returncode == 1
    failed = [line for line in made.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1 and "test_theirs[prompt_fits_the_recipe]" in failed[0]
    assert PROPERTIES["prompt_fits_the_recipe"].must in made.stdout and "raise recipe_budget" in made.stdout
