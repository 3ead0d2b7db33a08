"""The package of docs/write-a-method.md, trained as it says: cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPO, assert_succeeded, run_recipe
from tests.written_package import write_package
from verl_video_tools.records.report import LOG_NAMES, read_log

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]


def test_two_steps_of_the_page_s_recipe(output_dir: Path) -> None:
    """Its wheel, unpacked, is what every process of the run finds: code, prompts and entry point."""
    folder, site = output_dir / "write_a_method", output_dir / "write_a_method_site"
    for old in (folder, site):
        shutil.rmtree(old, ignore_errors=True)
    write_package(folder)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(site / "wheel")]
    subprocess.run(build, cwd=folder, check=True)
    (wheel,) = (site / "wheel").iterdir()
    zipfile.ZipFile(wheel).extractall(site)
    run = run_recipe(
        "recipe_spotter_grpo",
        os.path.relpath(folder / "spotter_grpo", REPO / "recipes"),
        output_dir,
        "trainer.total_training_steps=2",
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        PYTHONPATH=os.pathsep.join([str(REPO), str(site)]),
    )
    assert_succeeded(run)
    assert (output_dir / "spotter_sft" / "huggingface" / "config.json").exists()
    assert (run.folder / "huggingface" / "config.json").exists()
    (log,) = run.folder.glob(LOG_NAMES)
    steps = read_log(log)
    assert sorted(steps) == [1, 2] and all(values["invariant/violations"] == 0 for values in steps.values())
    files = sorted((run.folder / "trajectories").glob("step_*.jsonl"))
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) == 2 and {record["trajectory"]["method"] for record in records} == {"spotter"}
    looked = [any(call["ok"] for turn in r["trajectory"]["turns"] for call in turn["calls"]) for r in records]
    assert sum(looked) >= 0.3 * len(records)
    for record in records:
        reward = record["reward"]
        assert reward["score"] == pytest.approx(reward["accuracy"] + reward["looked"] + reward["necessity"])
    check_necessity(records, looked)


def check_necessity(records: list[dict[str, Any]], looked: list[bool]) -> None:
    """A right rollout with a look earns 0.3 times the share of its unflagged siblings without one that were wrong."""
    groups: dict[tuple[int, str], list[tuple[bool, bool, float]]] = {}
    for record, look in zip(records, looked, strict=True):
        if not record["trajectory"]["flags"]:
            right = record["reward"]["accuracy"] > 0
            own = (look, right, record["reward"]["necessity"])
            groups.setdefault((record["step"], record["uid"]), []).append(own)
    for group in groups.values():
        guesses = [right for look, right, _ in group if not look]
        wrong = guesses.count(False) / len(guesses) if guesses else 0.0
        for look, right, paid in group:
            assert paid == pytest.approx(0.3 * wrong if look and right else 0.0)
