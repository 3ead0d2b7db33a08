"""GRPO with LoRA: two steps, with the merged weights or the adapter sent to the engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]

MAX_DIFFERENCES = {"merged": 2e-3, "adapter": MAX_PROBS_DIFF}
"""Of engine and actor. verl 0.9.1 rounds merged weights to bfloat16 (`_merged_lora_per_tensor_param`), which costs 3e-4
to 6e-4; the run's two steps move the probabilities by 3e-2."""


@pytest.fixture(scope="module", params=["merged", "adapter"])
def run(request: pytest.FixtureRequest, output_dir: Path, sft_model: Path) -> Run:
    run = run_recipe(
        f"lora_{request.param}",
        "framethinker_grpo",
        output_dir,
        f"+video_tools/lora={request.param}_grpo",
        *("actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.lora_alpha=16"),
        *("actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"),
        *("actor_rollout_ref.actor.optim.lr=1e-2", "trainer.save_freq=2", "trainer.total_training_steps=2"),
        MODEL_PATH=str(sft_model),
    )
    assert_succeeded(run)
    return run


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()}


def test_the_engine_has_the_actors_probabilities_after_an_update(run: Run) -> None:
    differences = [float(value) for value in re.findall(r"rollout_probs_diff_mean:([\d.e-]+)", run.log)]
    assert len(differences) == 2
    assert max(differences) <= MAX_DIFFERENCES[run.folder.name.removeprefix("lora_")]


def test_the_exported_model_has_the_adapter_merged_and_its_vision_tower_untouched(run: Run, sft_model: Path) -> None:
    before, after = weights(sft_model), weights(run.folder / "huggingface")
    assert set(after) == set(before)
    changed = {name for name in before if not torch.equal(before[name].bfloat16(), after[name].bfloat16())}
    assert changed and not any("visual" in name for name in changed)
