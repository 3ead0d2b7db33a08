"""Configurations of recipes, each composed once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from omegaconf import DictConfig

from tests.recipes.options import CACHED, RFT, SETTINGS, Composed, recipe_plan, script_arguments


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Composed:
    """`composed(recipe, setting, *arguments)`: the configuration of `recipes/<recipe>.sh`. Only to be read."""

    @cache
    def config_of(recipe: str, setting: str, *arguments: str) -> DictConfig:
        usual = {"grpo": (CACHED,), "rft": RFT}.get(script_arguments(recipe)[0], ()) if setting == "gpu" else ()
        folder = tmp_path_factory.mktemp(recipe)
        config = recipe_plan(recipe, folder, *usual, *arguments, **SETTINGS[setting]).config
        for options in config.video_tools.values():
            if isinstance(options, DictConfig) and "demo_dir" in config.video_tools and options.get("prompt_file"):
                prompt = Path(options.prompt_file)  # which `vvt demo` writes
                prompt.parent.mkdir(parents=True, exist_ok=True)
                prompt.touch()
        return config

    return config_of
