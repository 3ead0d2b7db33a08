"""--smoke-test: what a smoke test has of the real run, and what of the synthetic world."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from omegaconf import OmegaConf

from tests.recipes.options import Composed, grpo_recipes

TESTED = {
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "actor_rollout_ref.actor.fsdp_config.mixed_precision": None,  # verl's default, bfloat16
    "actor_rollout_ref.ref.fsdp_config.mixed_precision": None,
    "actor_rollout_ref.ref.fsdp_config.model_dtype": "bf16",
    "actor_rollout_ref.rollout.dtype": "bfloat16",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 2,
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": 2,
    "trainer.n_gpus_per_node": 2,
    "trainer.total_training_steps": 2,
    "trainer.save_freq": 1,
}
REAL = (
    "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload",
    "actor_rollout_ref.rollout.gpu_memory_utilization",
    "actor_rollout_ref.actor.fsdp_config._target_",
)
"""Options that a smoke test has from the recipe's real run."""
LENGTHS = (
    "data.max_prompt_length",
    "data.max_response_length",
    "data.train_batch_size",
    "data.mm_processor_kwargs",
    "actor_rollout_ref.rollout.max_num_batched_tokens",
    "actor_rollout_ref.rollout.max_model_len",
)
"""Those that it has from the synthetic world."""


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "device"), [*zip(grpo_recipes(), itertools.cycle(["cpu", "gpu"]))])
def test_a_smoke_test_has_the_options_of_the_real_run_but_its_lengths(
    recipe: str, device: str, composed: Composed
) -> None:
    real, synthetic = composed(recipe, "gpu"), composed(recipe, "cpu")
    config = composed(recipe, device, "--smoke-test")
    assert {name: OmegaConf.select(config, name) for name in TESTED} == TESTED
    assert {name: OmegaConf.select(config, name) for name in REAL} == {
        name: OmegaConf.select(real, name) for name in REAL
    }
    assert {name: OmegaConf.select(config, name) for name in LENGTHS} == {
        name: OmegaConf.select(synthetic, name) for name in LENGTHS
    }
    attention = config.actor_rollout_ref.model.override_config.get("attn_implementation")
    assert attention == ("packed_by_torch" if device == "cpu" else None)
    assert Path(config.trainer.default_local_dir).parent.name == f"{recipe.removesuffix('_grpo')}_smoke_test"
