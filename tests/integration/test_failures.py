"""Rows that no run can begin with. What befalls a run that has begun is planted in `tests/faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import run_recipe, write_rows

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]


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
