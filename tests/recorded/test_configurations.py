"""Every recipe makes of verl's configuration what it did when `tests.recorded.configurations` recorded it."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recorded.configurations import (
    SMALL,
    USUAL,
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

RENEW = "python -m tests.recorded.configurations records what the recipes make now"


@pytest.mark.slow
@pytest.mark.parametrize("run", [run for recipe in recipes() for run in runs_of(recipe)], ids="-".join)
def test_a_recipe_is_as_recorded(run: Run) -> None:
    assert differences({run: read(run[0])[run]}, {run: configuration(run)}) == [], RENEW


def test_all_runs_are_recorded() -> None:
    assert all(list(read(recipe)) == runs_of(recipe) for recipe in recipes()), RENEW


def test_each_value_that_differs_is_named() -> None:
    """A changed, a new and a missing one; and what is kept of them gives them again."""
    run, gone, new = ("longvt_grpo", "gpu", USUAL), ("longvt_grpo", "cpu", USUAL), ("longvt_grpo", "gpu", SMALL)
    recorded = read("longvt_grpo")[run]
    changed = {**recorded, "data.train_batch_size": 8, "environment.VLLM_PORT": "1"}
    del changed["trainer.nnodes"]
    assert differences({run: recorded, gone: {}}, {run: changed, new: {}}) == [
        "longvt_grpo, gpu, none, data.train_batch_size: was 16, is 8",
        'longvt_grpo, gpu, none, environment.VLLM_PORT: was (absent), is "1"',
        "longvt_grpo, gpu, none, trainer.nnodes: was 1, is (absent)",
        "longvt_grpo, cpu, none: is gone",
        "longvt_grpo, gpu, 4x48gb_lora: is new",
    ]
    base = defaults("longvt_grpo")
    assert apply(base, changes(base, changed)) == changed
