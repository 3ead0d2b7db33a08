"""Two steps of a package in examples/papers by its own recipe, its cold start included."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from tests.integration.conftest import REPO, assert_succeeded, run_recipe


def two_steps(paper: str, output_dir: Path, *options: str) -> list[dict[str, Any]]:
    """The records of both steps, in order.

    The package is found as an installed one: by metadata on the path, made of its `pyproject.toml`.

    Args:
        options: further verl options.
    """
    folder = REPO / "examples" / "papers" / paper
    installed = output_dir / f"{paper}_installed"
    _install(folder, installed)
    run = run_recipe(
        f"recipe_{paper}_grpo",
        f"../examples/papers/{paper}/{paper}_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        *options,
        PYTHONPATH=os.pathsep.join(map(str, (REPO, folder, installed))),
    )
    assert_succeeded(run)
    files = sorted((run.folder / "trajectories").glob("step_*.jsonl"))
    assert len(files) == 2
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def _install(folder: Path, target: Path) -> None:
    """What an editable installation leaves of a package."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    metadata = target / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["entry-points"].items()
    lines = [
        line for group, named in groups for line in (f"[{group}]", *(f"{key} = {path}" for key, path in named.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
