"""Rows, model and reference run that all cells share."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from tests.faults.compare import different_weights, rollouts, weights
from tests.faults.plan import NUM_ROWS, REFERENCE_STEPS
from tests.faults.run import clear, start
from tests.integration.conftest import output_dir, sft_model

__all__ = ["output_dir", "sft_model"]


@pytest.fixture(scope="session")
def inputs(output_dir: Path, sft_model: Path) -> dict[str, str]:
    """What every run of the plan is given: the cold-started model and rows of FrameThinker, two of them held out."""
    files = {}
    for split, number in NUM_ROWS.items():
        rows = pq.read_table(output_dir / "demo_mixed" / f"{split}.parquet").to_pylist()
        kept = [row for row in rows if row["agent_name"] == "framethinker"][:number]
        for index, row in enumerate(kept):
            row["extra_info"]["index"] = index
        files[split] = str(output_dir / f"fault_{split}.parquet")
        Dataset.from_list(kept).to_parquet(files[split])
    return {
        "MODEL_PATH": str(sft_model),
        "demo_dir": str(output_dir / "demo_mixed"),
        "TRAIN_FILES": files["train"],
        "VAL_FILES": files["test"],
    }


@pytest.fixture(scope="session")
def reference(output_dir: Path, inputs: dict[str, str]) -> Path:
    """Folder of an uninterrupted run, which is kept with the outputs."""
    folder = output_dir / f"fault_reference_{REFERENCE_STEPS}"
    if os.environ.get("FRESH") == "1" or not (folder / "huggingface" / "config.json").exists():
        clear(folder)
        run = start(folder, REFERENCE_STEPS, **inputs)
        assert run.wait_for("1 validation"), run.log[-6000:]
        run.look()
        run.finish()
        assert run.returncode == 0, run.log[-6000:]
        assert not run.left
    steps = [weights(folder, step) for step in range(1, REFERENCE_STEPS + 1)]
    for before, after in pairwise(steps):
        assert different_weights(before, after), "a step that moves no weight would prove nothing"
    assert {step for step, *_ in rollouts(folder)} == set(range(1, REFERENCE_STEPS + 1))
    return folder
