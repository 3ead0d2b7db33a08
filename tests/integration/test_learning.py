"""GRPO makes a policy better at questions that it was never trained on: the learning example, shortened.

One method, one kind of question, a cold start that guesses half of the time, 20 steps. It has to read well what it
looks at, else looking hardly pays and so few steps are not enough. The whole example: docs/learning.md.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.needle_bounds import MOST_FIRST_LOOK
from tests.integration.conftest import REPO

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def results(output_dir: Path) -> dict[str, Any]:
    example = runpy.run_path(str(REPO / "examples" / "learning_curve" / "run.py"))
    plan = example["Plan"](
        kinds=("at_time",),
        num_train_videos=150,
        num_direct_rows=60,
        questions_per_video=30,
        imperfection=0.5,
        hasty_share=0.9,
        measures_base=False,
        rl_steps=20,
    )
    folder = output_dir / "learning"
    example["Learning"]("framethinker", 0, folder, plan).run()
    return json.loads((folder / "results.json").read_text())


def test_held_out_accuracy_rises_beyond_noise(results: dict[str, Any]) -> None:
    """The whole 95 % interval of the gain, paired by question, lies above zero."""
    gain = results["after RL less after SFT"]
    assert gain["low"] > 0.0, results


def test_the_gain_comes_from_looking(results: dict[str, Any]) -> None:
    """No policy can be right more often than `MOST_FIRST_LOOK` by what the first look shows; this one is."""
    assert results["accuracy"]["after RL"]["needs another look"]["low"] > MOST_FIRST_LOOK, results
