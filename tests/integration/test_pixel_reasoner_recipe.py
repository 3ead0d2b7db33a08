"""examples/papers/pixel_reasoner by its README's command: its own cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPO, assert_succeeded, run_recipe

pytestmark = pytest.mark.recipes


@pytest.mark.timeout(2400)
def test_two_steps_with_a_reward_of_the_group(output_dir: Path) -> None:
    """The package is found as an installed one: by metadata on the path, made of its `pyproject.toml`."""
    folder = REPO / "examples" / "papers" / "pixel_reasoner"
    metadata = output_dir / "pixel_reasoner_installed" / "pixel_reasoner-0.1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pixel_reasoner\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[verl_video_tools.methods]\npixel_reasoner = pixel_reasoner:PixelReasoner\n"
    )
    run = run_recipe(
        "recipe_pixel_reasoner_grpo",
        "../examples/papers/pixel_reasoner/pixel_reasoner_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        # Above that of every group but one in which all look: what is paid then tells the rate.
        "++actor_rollout_ref.rollout.custom.video_tools.pixel_reasoner.wanted_rate=1.0",
        PYTHONPATH=os.pathsep.join([str(REPO), str(folder), str(metadata.parent)]),
    )
    assert_succeeded(run)
    files = sorted((run.folder / "trajectories").glob("step_*.jsonl"))
    assert len(files) == 2
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for record in (json.loads(line) for file in files for line in file.read_text().splitlines()):
        if record["trajectory"].get("flags"):  # no rollout that its siblings are compared with
            continue
        groups[record["step"], record["uid"]].append(record)
    looked = 0
    for group in groups.values():
        used = [any(call["ok"] for turn in each["trajectory"]["turns"] for call in turn["calls"]) for each in group]
        looked += sum(used)
        for each, own in zip(group, used, strict=True):
            expected = 0.5 * (1.0 - sum(used) / len(used)) * own
            assert each["reward"]["curiosity"] == pytest.approx(expected)
    assert looked > 0
