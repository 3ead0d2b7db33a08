"""Every recipe hands to verl what it did when `tests.recorded.configurations` recorded it."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import preset_names
from tests.recorded.configurations import (
    DEVICES,
    NO_PRESET,
    Run,
    apply,
    changes,
    configuration,
    defaults,
    differences,
    read,
    recipes,
    runs_of,
)

RENEW = "python -m tests.recorded.configurations records what the recipes hand to verl now"


def selection() -> list[Run]:
    """One run of each recipe, so that each device and each preset is among them."""
    runs = []
    for number, recipe in enumerate(recipes()):
        of_recipe = runs_of(recipe)
        presets = (NO_PRESET, *preset_names())
        devices = len(of_recipe) // len(presets)
        runs.append(of_recipe[number // 2 % devices * len(presets) + number % len(presets)])
    return runs


def differences_of(runs: list[Run]) -> list[str]:
    recorded = {run: values for recipe in {run[0] for run in runs} for run, values in read(recipe).items()}
    return differences({run: recorded[run] for run in runs}, {run: configuration(run) for run in runs})


@pytest.mark.slow
@pytest.mark.parametrize("run", selection(), ids="-".join)
def test_a_recipe_is_as_recorded(run: Run) -> None:
    assert differences_of([run]) == [], RENEW


def test_the_selection_has_each_recipe_device_and_preset() -> None:
    chosen_recipes, devices, presets = (set(names) for names in zip(*selection(), strict=True))
    assert chosen_recipes == set(recipes())
    assert devices == set(DEVICES) and presets == {NO_PRESET, *preset_names()}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("recipe", recipes())
def test_every_device_and_preset_is_as_recorded(recipe: str) -> None:
    assert list(read(recipe)) == runs_of(recipe), RENEW
    assert differences_of(runs_of(recipe)) == [], RENEW


def test_each_value_that_differs_is_named() -> None:
    """A changed, a new and a missing one; and what is kept of them gives them again."""
    run, gone, new = (("longvt_grpo", "gpu", preset) for preset in (NO_PRESET, "published", "7b_8x80gb"))
    recorded = read("longvt_grpo")[run]
    changed = {**recorded, "data.train_batch_size": 8, "environment.VLLM_PORT": "1"}
    del changed["trainer.nnodes"]
    assert differences({run: recorded, gone: {}}, {run: changed, new: {}}) == [
        "longvt_grpo, gpu, none, data.train_batch_size: was 16, is 8",
        'longvt_grpo, gpu, none, environment.VLLM_PORT: was (absent), is "1"',
        "longvt_grpo, gpu, none, trainer.nnodes: was 1, is (absent)",
        "longvt_grpo, gpu, published: is gone",
        "longvt_grpo, gpu, 7b_8x80gb: is new",
    ]
    base = defaults("longvt_grpo")
    assert apply(base, changes(base, changed)) == changed
