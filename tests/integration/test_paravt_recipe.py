"""examples/papers/paravt by its README's command: its own cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integration.conftest import REPO, assert_succeeded, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]


def test_two_steps_with_several_calls_in_a_turn(output_dir: Path) -> None:
    """The package is found as an installed one: by metadata on the path, made of its `pyproject.toml`."""
    folder = REPO / "examples" / "papers" / "paravt"
    metadata = output_dir / "paravt_installed" / "paravt-0.1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: paravt\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[verl_video_tools.methods]\nparavt = paravt:ParaVT\n")
    run = run_recipe(
        "recipe_paravt_grpo",
        "../examples/papers/paravt/paravt_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        PYTHONPATH=os.pathsep.join([str(REPO), str(folder), str(metadata.parent)]),
    )
    assert_succeeded(run)
    files = sorted((run.folder / "trajectories").glob("step_*.jsonl"))
    assert len(files) == 2
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    drawn = {(record["step"], record["uid"], len(record["trajectory"]["initial_frames"])) for record in records}
    assert {number for *_, number in drawn} <= {4, 8}
    assert len(drawn) == len({(step, uid) for step, uid, _ in drawn}), "a group shares its number of frames"
    turns = [turn for record in records for turn in record["trajectory"]["turns"]]
    assert max(sum(call["ok"] for call in turn["calls"]) for turn in turns) >= 2
