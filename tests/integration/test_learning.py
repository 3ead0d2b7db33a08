"""GRPO makes a policy better at questions that it was never trained on: the learning example, shortened.

One method, one kind of question, a cold start that mostly guesses, 30 steps. The whole example, with its figures, is in
docs/learning.md.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPO

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def results(output_dir: Path) -> dict[str, Any]:
    example = runpy.run_path(str(REPO / "examples" / "learning_curve" / "run.py"))
    plan = example["Plan"](
        kinds=("at_time",), measures_base=False, num_train_videos=200, num_direct_rows=60, rl_steps=30
    )
    folder = output_dir / "learning"
    example["Learning"]("framethinker", 0, folder, plan).run()
    return json.loads((folder / "results.json").read_text())


def test_held_out_accuracy_rises_beyond_noise(results: dict[str, Any]) -> None:
    """The whole 95 % interval of the gain, paired by question, lies above zero."""
    gain = results["after RL less after SFT"]
    assert gain["low"] > 0.0, results


def test_the_gain_comes_from_looking(results: dict[str, Any]) -> None:
    """Without tools the same policy stays where it was: nothing but the frames that it asks for tells the answer."""
    assert results["after RL less after RL, without tools"]["low"] > 0.0, results
