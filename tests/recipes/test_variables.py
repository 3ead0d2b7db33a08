"""Variables that every GRPO recipe takes: corrections for the engine, and LoRA."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import Composed, grpo_recipes, recipe_arguments

CORRECTIONS = {
    "off": "disabled",
    "token_tis": "decoupled_token_is",
    "sequence_tis": "decoupled_seq_is",
    "mis": "decoupled_seq_is_rs",
}
"""`ROLLOUT_CORRECTION`, and verl's preset of it."""
LORA = {"LORA_RANK": "32", "LORA_ALPHA": "64", "LORA_SYNC": "adapter"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "correction"),
    [
        *((recipe, "mis") for recipe in grpo_recipes()),
        *(("longvt_grpo", name) for name in CORRECTIONS if name != "mis"),
    ],
)
def test_every_recipe_corrects_for_the_engine_on_request(recipe: str, correction: str, composed: Composed) -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig
    from verl.utils.config import omega_conf_to_dataclass

    variables = {} if correction == "off" else {"ROLLOUT_CORRECTION": correction}
    variables |= LORA if correction == "mis" else {}  # the run of the test below
    options = composed(recipe, "cpu", **variables).algorithm.rollout_correction
    found = omega_conf_to_dataclass(options, RolloutCorrectionConfig)
    assert found == getattr(RolloutCorrectionConfig, CORRECTIONS[correction])()


def test_an_unknown_correction_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match="must be off, token_tis, sequence_tis or mis, got 'tis'"):
        recipe_arguments("longvt_grpo", tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), ROLLOUT_CORRECTION="tis")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_every_recipe_trains_an_adapter_of_the_language_model_on_request(recipe: str, composed: Composed) -> None:
    assert composed(recipe, "cpu").actor_rollout_ref.model.lora_rank == 0
    model = composed(recipe, "cpu", ROLLOUT_CORRECTION="mis", **LORA).actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.lora.merge) == (32, 64, False)
    assert model.target_modules == "all-linear" and model.exclude_modules == ".*visual.*"


def test_an_unknown_way_to_send_an_adapter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match="LORA_SYNC must be merged or adapter, got 'both'"):
        recipe_arguments("longvt_grpo", tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), LORA_SYNC="both")
