"""Configurations of recipes, each composed once."""

from __future__ import annotations

from functools import cache

import pytest
from omegaconf import DictConfig

from tests.recipes.options import SETTINGS, Composed, recipe_config


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Composed:
    """`composed(recipe, setting)`: the configuration that `recipes/<recipe>.sh` hands to verl. Only to be read.

    Further variables, such as `composed(recipe, setting, NNODES="8")`, come on top of the setting's.
    """

    @cache
    def config_of(recipe: str, setting: str, **variables: str) -> DictConfig:
        return recipe_config(recipe, tmp_path_factory.mktemp(recipe), **{**SETTINGS[setting], **variables})

    return config_of
