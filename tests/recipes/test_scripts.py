"""recipes/*.sh: each starts the run of its name, with whatever follows it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import RECIPES, script_arguments

SCRIPTS = sorted(path.stem for path in RECIPES.glob("*.sh"))


@pytest.mark.parametrize("recipe", sorted(set(SCRIPTS) - {"demo"}))
def test_a_script_names_its_stage_and_its_group(recipe: str) -> None:
    assert script_arguments(recipe) == (recipe.rpartition("_")[2], f"+video_tools={recipe}")


def test_the_demo_is_framethinkers_recipe_in_the_synthetic_world() -> None:
    arguments = script_arguments("demo")
    assert arguments[:3] == (*script_arguments("framethinker_grpo"), "--synthetic")


@pytest.mark.parametrize("recipe", SCRIPTS)
def test_arguments_are_handed_on_as_they_are(recipe: str, tmp_path: Path) -> None:
    stub = tmp_path / "python"
    stub.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    stub.chmod(0o755)
    given = ["--dry-run", "data.train_files=[a b.parquet, it's.parquet]", "~f"]
    command = ["bash", str(RECIPES / f"{recipe}.sh"), *given]
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(stub)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-3:] == given
