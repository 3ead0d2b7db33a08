"""Groups that every GRPO recipe takes: corrections for the engine, and adapters."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import Composed, grpo_recipes

pytestmark = pytest.mark.slow

CORRECTIONS = {
    "token_tis": "decoupled_token_is",
    "sequence_tis": "decoupled_seq_is",
    "mis": "decoupled_seq_is_rs",
    "bypass": "bypass_ppo_clip",
}
"""The group, and verl's preset of it."""
GROUPS = ("+video_tools/lora=adapter_grpo", "+video_tools/correction=mis")


@pytest.mark.parametrize("correction", [None, *CORRECTIONS])
def test_a_correction_for_the_engine_is_verls(correction: str | None, composed: Composed) -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig
    from verl.utils.config import omega_conf_to_dataclass

    groups = () if correction is None else (f"+video_tools/correction={correction}",)
    options = composed("longvt_grpo", "cpu", *groups).algorithm.rollout_correction
    expected = "disabled" if correction is None else CORRECTIONS[correction]
    found = omega_conf_to_dataclass(options, RolloutCorrectionConfig)
    assert found == getattr(RolloutCorrectionConfig, expected)()


@pytest.mark.parametrize("recipe", grpo_recipes())
def test_every_recipe_trains_an_adapter_of_the_language_model_on_request(recipe: str, composed: Composed) -> None:
    assert composed(recipe, "cpu").actor_rollout_ref.model.lora_rank == 0
    config = composed(recipe, "cpu", *GROUPS)
    model = config.actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.lora.merge) == (32, 64, False)
    assert model.target_modules == "all-linear" and model.exclude_modules == ".*visual.*"
    assert config.algorithm.rollout_correction.rollout_rs == "seq_sum_k1"
