"""examples/papers/timesearch_r by its own recipe: a cold start, then two steps of GRPO."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integration.conftest import REPO, assert_succeeded, run_recipe

pytestmark = pytest.mark.recipes

FOLDER = REPO / "examples" / "papers" / "timesearch_r"


@pytest.mark.timeout(2400)
def test_two_steps_with_verification(output_dir: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "timesearch_r-0.1.0.dist-info"  # what an editable installation leaves
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: timesearch_r\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[verl_video_tools.methods]\ntimesearch_r = timesearch_r:TimeSearchR\n")
    run = run_recipe(
        "paper_timesearch_r",
        "../examples/papers/timesearch_r/timesearch_r_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        PYTHONPATH=os.pathsep.join(map(str, (REPO, FOLDER, tmp_path))),
    )
    assert_succeeded(run)
    files = sorted((run.folder / "trajectories").glob("step_*.jsonl"))
    trajectories = [json.loads(line)["trajectory"] for file in files for line in file.read_text().splitlines()]
    asked = [each["verification"] for each in trajectories if "verification" in each]
    assert {each["method"] for each in trajectories} == {"timesearch_r"} and len(files) == 2
    assert asked and any(each["text"] is not None and each["frames"] for each in asked)
