"""Which recipes train the vision tower, and the variable that decides."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from hydra import compose, initialize_config_module

from tests.recipes.options import (
    SETTINGS,
    Composed,
    grpo_recipes,
    recipe_arguments,
    recipe_config,
    sft_recipes,
)
from verl_video_tools.verl_plugin.engine import honour_freeze_vision_tower

pytestmark = pytest.mark.slow

FROZEN_TOWER = {"videobrain_grpo", "videobrain_sft", "videozoomer_sft"}
"""Recipes that leave the vision tower as it is; docs/training.md names the sources."""


def engine_config(recipe: str, composed: Composed, folder: Path, **variables: str) -> Any:
    """The configuration of the engine that trains, as verl's workers make it of what the recipe sets."""
    from verl.utils.config import omega_conf_to_dataclass

    if recipe.endswith("_grpo"):
        config = copy.deepcopy(composed(recipe, "gpu")) if not variables else recipe_config(recipe, "gpu", folder)
        honour_freeze_vision_tower(config)  # as our trainers do before any worker starts
        return omega_conf_to_dataclass(config.actor_rollout_ref.actor).engine
    arguments = recipe_arguments(recipe, folder, DEVICE="gpu", TRAIN_FILES="/train.parquet", NNODES="1", **variables)
    with initialize_config_module("verl.trainer.config", version_base=None):
        return omega_conf_to_dataclass(compose("sft_trainer_engine", overrides=arguments).engine)


@pytest.mark.parametrize("recipe", [*grpo_recipes(), *sft_recipes()])
def test_which_recipes_freeze_the_vision_tower(recipe: str, composed: Composed, tmp_path: Path) -> None:
    from verl_video_tools.verl_plugin.engine.frozen_tower import FrozenTowerConfig

    engine = engine_config(recipe, composed, tmp_path)
    assert engine.strategy == "fsdp2"
    assert isinstance(engine, FrozenTowerConfig) == (recipe in FROZEN_TOWER)


@pytest.mark.parametrize("recipe", ["videobrain_grpo", "videobrain_sft", "longvt_grpo", "longvt_sft"])
def test_one_variable_freezes_the_vision_tower_or_lets_it_train(
    recipe: str, composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl_video_tools.verl_plugin.engine.frozen_tower import FrozenTowerConfig

    variables = {"FREEZE_VISION_TOWER": "0" if recipe in FROZEN_TOWER else "1"}
    monkeypatch.setitem(SETTINGS, "gpu", {**SETTINGS["gpu"], **variables})
    engine = engine_config(recipe, composed, tmp_path, **variables)
    assert isinstance(engine, FrozenTowerConfig) == (recipe not in FROZEN_TOWER)
