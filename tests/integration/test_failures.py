"""A dead engine ends the run with a clear message; a killed run resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import INSTRUMENTED, Run, assert_succeeded, run_recipe, write_rows
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

PATIENCE_SECONDS = 300


def run_with_dying_engine(output_dir: Path, sft_model: Path, during: str) -> Run:
    return run_recipe(
        f"dies_during_{during}",
        "mixed_grpo",
        output_dir,
        "trainer.total_training_steps=4",
        "trainer.save_freq=1",
        MODEL_PATH=str(sft_model),
        ROLLOUT_N="2",
        TRAIN_BATCH_SIZE="2",
        MICRO_BATCH_SIZE="4",
        VVT_TEST_KILL_ENGINE=during,
        **INSTRUMENTED,
    )


@pytest.fixture(scope="module")
def dead_in_update(output_dir: Path, sft_model: Path) -> Run:
    return run_with_dying_engine(output_dir, sft_model, "update")


def test_engine_dies_during_generation(output_dir: Path, sft_model: Path) -> None:
    run = run_with_dying_engine(output_dir, sft_model, "generate")
    assert run.returncode != 0
    assert "EngineDeadError" in run.log or "RUN ENDED" in run.log
    assert run.seconds < PATIENCE_SECONDS + 300, "start-up and one step take minutes; the rest must not"


def test_engine_dies_during_a_weight_update(dead_in_update: Run) -> None:
    assert dead_in_update.returncode != 0
    assert "RUN ENDED" in dead_in_update.log
    assert "resume" in dead_in_update.log
    assert dead_in_update.seconds < PATIENCE_SECONDS + 300


def test_the_run_resumes_from_its_checkpoint(dead_in_update: Run, output_dir: Path, sft_model: Path) -> None:
    """The engine died in the weight update after step 1, whose checkpoint was complete."""
    assert (dead_in_update.folder / "latest_checkpointed_iteration.txt").read_text().strip() == "1"
    run = run_recipe(
        "dies_during_update",
        "mixed_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        "trainer.save_freq=1",
        MODEL_PATH=str(sft_model),
        ROLLOUT_N="2",
        TRAIN_BATCH_SIZE="2",
        MICRO_BATCH_SIZE="4",
    )
    assert_succeeded(run)
    assert (run.folder / "latest_checkpointed_iteration.txt").read_text().strip() == "2"
    assert 2 in {line["step"] for line in read_records(run.folder / "trajectories")}


def test_an_unknown_agent_name_is_one_clear_error(output_dir: Path, sft_model: Path) -> None:
    def misname(number: int, row: dict) -> None:
        row["agent_name"] = "framethinkr"

    run = run_recipe(
        "typo",
        "mixed_grpo",
        output_dir,
        "trainer.total_training_steps=1",
        TRAIN_FILES=write_rows(output_dir, "typo.parquet", "framethinker", misname),
        MODEL_PATH=str(sft_model),
    )
    assert run.returncode != 0
    assert "rows name agent loops that are not registered: framethinkr" in run.log
