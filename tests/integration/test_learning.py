"""GRPO makes a policy better at questions that it was never trained on: the learning example, shortened.

One method, one kind of question, a cold start that guesses half of the time, 6 steps. It has to read well what it
looks at, else looking hardly pays and so few steps are not enough. The whole example: docs/learning.md.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, REPO
from tests.integration.leftovers import VARIABLE, kill_processes_of
from verl_video_tools.records.report import LOG_NAMES, read_log
from verl_video_tools.synthetic.needle import MOST_BY_INITIAL_FRAMES

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

NUM_STEPS = 6
"""The whole takes about 5 minutes with them on two cores."""


@pytest.fixture(scope="module")
def folder(output_dir: Path) -> Path:
    """What the example leaves behind, always made anew."""
    example = runpy.run_path(str(REPO / "examples" / "learning_curve" / "run.py"))
    plan = example["Plan"](
        kinds=("at_time",),
        num_train_videos=150,
        num_direct_rows=60,
        questions_per_video=10,
        imperfection=0.5,
        compares_without_tools=False,
        interim_questions=0,
        rl_steps=NUM_STEPS,
    )
    folder = output_dir / "learning"
    shutil.rmtree(folder, ignore_errors=True)
    marker = f"learning-{os.getpid()}-{time.time_ns()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, marker)
        try:
            example["Learning"]("framethinker", 0, folder, plan).run()
        finally:
            kill_processes_of(marker)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("gain", ["after RL less after SFT", "reward after RL less after SFT"])
def test_validation_accuracy_and_reward_rise_beyond_noise(results: dict[str, Any], gain: str) -> None:
    """The whole 95 % interval of the gain, paired by question, lies above zero."""
    assert results[gain]["low"] > 0.0, results


def test_the_gain_comes_from_looking(results: dict[str, Any]) -> None:
    """No policy can be right more often than `MOST_BY_INITIAL_FRAMES` by what the initial frames show; this one is."""
    assert results["accuracy"]["after RL"]["needs another look"]["low"] > MOST_BY_INITIAL_FRAMES, results


def test_no_step_shows_a_broken_mask_position_or_weight(folder: Path) -> None:
    """What `test_planted_faults.py` finds to catch these faults is silent in every step."""
    (log,) = (folder / "rl").glob(LOG_NAMES)
    steps = [values for values in read_log(log).values() if "invariant/violations" in values]
    assert len(steps) == NUM_STEPS
    assert {values["invariant/violations"] for values in steps} == {0.0}
    assert max(values["training/rollout_probs_diff_mean"] for values in steps) <= MAX_PROBS_DIFF
