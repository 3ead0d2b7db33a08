"""Which recipes train the vision tower, and the option that decides."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import Composed, grpo_recipes, sft_recipes
from verl_video_tools.verl_plugin.settings import honour_freeze_vision_tower

pytestmark = pytest.mark.slow

FROZEN_TOWER = {"videobrain_grpo", "videobrain_sft", "videozoomer_sft"}
"""Recipes that leave the vision tower as it is; docs/training.md names the sources."""


def engine_config(recipe: str, composed: Composed, *options: str) -> Any:
    """The configuration of the engine that trains, as verl's workers make it of what the recipe sets."""
    from verl.utils.config import omega_conf_to_dataclass

    config = copy.deepcopy(composed(recipe, "gpu", *options))
    if recipe.endswith("_sft"):
        return omega_conf_to_dataclass(config.engine)
    honour_freeze_vision_tower(config)  # as our trainers do before any worker starts
    return omega_conf_to_dataclass(config.actor_rollout_ref.actor).engine


@pytest.mark.parametrize("recipe", [*grpo_recipes(), *sft_recipes()])
def test_which_recipes_freeze_the_vision_tower(recipe: str, composed: Composed) -> None:
    from verl_video_tools.verl_plugin.fsdp_engine import FrozenTowerConfig

    engine = engine_config(recipe, composed)
    assert engine.strategy == "fsdp2"
    assert isinstance(engine, FrozenTowerConfig) == (recipe in FROZEN_TOWER)


@pytest.mark.parametrize("recipe", ["videobrain_grpo", "videobrain_sft", "longvt_grpo", "longvt_sft"])
def test_one_option_freezes_the_vision_tower_or_lets_it_train(recipe: str, composed: Composed) -> None:
    from verl.workers.config import FSDPEngineConfig

    from verl_video_tools.verl_plugin.fsdp_engine import FrozenTowerConfig

    is_frozen = recipe in FROZEN_TOWER
    option = f"actor_rollout_ref.actor.freeze_vision_tower={not is_frozen}"
    if recipe.endswith("_sft"):
        other = FSDPEngineConfig if is_frozen else FrozenTowerConfig
        option = f"engine._target_={other.__module__}.{other.__qualname__}"
    engine = engine_config(recipe, composed, option)
    assert isinstance(engine, FrozenTowerConfig) != is_frozen
