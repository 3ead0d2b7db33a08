"""Configurations of recipes, each composed once."""

from __future__ import annotations

from functools import cache

import pytest

from tests.recipes.options import Composed, recipe_config


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Composed:
    """`composed(recipe, setting)`: the configuration that `recipes/<recipe>.sh` hands to verl. Only to be read."""
    return cache(lambda recipe, setting: recipe_config(recipe, setting, tmp_path_factory.mktemp(recipe)))
