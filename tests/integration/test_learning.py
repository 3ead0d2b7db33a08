"""The shortened learning curve: a few minutes of GRPO raise the reward on held-out questions, beyond noise.

The long one is `make learn` (docs/learning.md). What this one would not notice is in `test_faults`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset

from tests.integration.conftest import assert_succeeded, run_recipe
from verl_video_tools.demo.dataset import load_rows, make_row, question_from_row
from verl_video_tools.trace.held_out import Outcome, mean_gain, read_outcomes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

NUM_STEPS = 16


def as_framethinker(parquet: Path, out: Path) -> str:
    """The mixed demo's questions, all of them asked as FrameThinker's."""
    rows = []
    for row in load_rows(parquet):
        spec, question = question_from_row(row)
        info = row["extra_info"]
        rows.append(make_row(spec, question, Path(info["video_path"]), len(rows), info["split"], "framethinker"))
    Dataset.from_list(rows).to_parquet(out)
    return str(out)


@pytest.fixture(scope="module")
def policies(output_dir: Path, sft_model: Path) -> tuple[dict[int, Outcome], dict[int, Outcome]]:
    """Greedy rollouts on held-out questions, before the first step and after the last."""
    demo = output_dir / "demo_mixed"
    run = run_recipe(
        "learning",
        "framethinker_grpo",
        output_dir,
        "trainer.val_before_train=True",
        f"trainer.test_freq={NUM_STEPS}",
        f"trainer.total_training_steps={NUM_STEPS}",
        "trainer.save_freq=-1",
        DEMO_DIR=str(demo),
        MAKE_DEMO="0",
        MODEL_PATH=str(sft_model),
        TRAIN_FILES=as_framethinker(demo / "train.parquet", output_dir / "learning_train.parquet"),
        VAL_FILES=as_framethinker(demo / "test.parquet", output_dir / "learning_test.parquet"),
        TRAIN_BATCH_SIZE="8",
        ROLLOUT_N="8",
        LEARNING_RATE="2e-4",
    )
    assert_succeeded(run)
    files = [run.folder / "trajectories" / f"val_step_{step:06d}.jsonl" for step in (0, NUM_STEPS)]
    return read_outcomes(files[0], "framethinker"), read_outcomes(files[1], "framethinker")


def test_held_out_reward_rises_beyond_noise(policies: tuple[dict[int, Outcome], dict[int, Outcome]]) -> None:
    before, after = policies
    assert len(before) >= 90
    gain = mean_gain(before, after, "score")
    assert gain.low > 0.0, f"held-out reward changed by {gain}"
