"""Two steps of all methods in verl's mode separate_async, and a third after a restart: engine and trainer have a device
each, and weights reach the engine by gloo."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe, write_rows
from tests.integration.test_colocate_async import last_difference
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]

GROUP_SIZE, GROUPS_PER_STEP = 4, 5
ENGINE = "actor_rollout_ref.rollout.checkpoint_engine"
OPTIONS = (
    "trainer.v1.trainer_mode=video_tools_separate_async",
    "trainer.v1.separate_async.parameter_sync_step=1",
    "actor_rollout_ref.hybrid_engine=False",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    f"{ENGINE}.backend=gloo",
    f"{ENGINE}.custom_backend_module=verl_video_tools.verl_plugin.platforms.gloo_checkpoint_engine",
    "++ray_kwargs.ray_init.num_gpus=2",
    "video_tools.trainer.record_tokens=True",
    f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
    f"data.train_batch_size={GROUPS_PER_STEP}",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "trainer.save_freq=1",
)


@pytest.fixture(scope="module")
def runs(output_dir: Path, sft_model: Path) -> list[Run]:
    """The second one goes on after the checkpoint of the first."""
    rows = write_rows(output_dir, "separate_async.parquet", None, lambda number, row: None)

    def run(num_steps: int) -> Run:
        run = run_recipe(
            "separate_async",
            "mixed_grpo",
            output_dir,
            *OPTIONS,
            f"trainer.total_training_steps={num_steps}",
            TRAIN_FILES=rows,
            VAL_FILES=rows,
            MODEL_PATH=str(sft_model),
        )
        assert_succeeded(run)
        return run

    return [run(2), run(3)]


def test_every_step_trains_whole_groups(runs: list[Run]) -> None:
    lines = list(read_records(runs[-1].folder / "trajectories"))
    assert Counter(line["step"] for line in lines) == dict.fromkeys((1, 2, 3), GROUPS_PER_STEP * GROUP_SIZE)
    assert (runs[-1].folder / "huggingface" / "config.json").exists()


def test_the_second_run_goes_on_where_the_first_has_ended(runs: list[Run]) -> None:
    assert "global_step_2" in runs[1].log
    assert "step:1 " not in runs[1].log and "step:3 " in runs[1].log


def test_the_engine_has_the_weights_that_the_record_names(runs: list[Run]) -> None:
    lines = list(read_records(runs[-1].folder / "trajectories"))
    current = [line for line in lines if line["policy_version"] == [line["step"] - 1] * 2]
    stale = [line for line in lines if line["policy_version"][0] not in (-1, line["step"] - 1)]
    assert {line["step"] for line in current} >= {1}
    assert np.mean([last_difference(line) for line in current]) <= MAX_PROBS_DIFF
    assert not stale or np.mean([last_difference(line) for line in stale]) > MAX_PROBS_DIFF
