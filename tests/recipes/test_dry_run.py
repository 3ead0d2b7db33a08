"""A dry run checks the very options that the run would be started with, and starts nothing else."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import SETTINGS, grpo_recipes, recipe_arguments, sft_recipes


def options_of_a_dry_run(arguments: list[str]) -> tuple[list[str], list[str]]:
    end = arguments.index("--")
    return arguments[:end], arguments[end + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "setting"),
    [*zip(grpo_recipes(), itertools.cycle(SETTINGS)), *zip(sft_recipes(), itertools.cycle(SETTINGS))],
)
def test_the_options_are_those_of_the_run(recipe: str, setting: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    variables = {**SETTINGS[setting], "MODEL_PATH": str(tmp_path / "model")}
    of_the_run = recipe_arguments(recipe, tmp_path, **variables)
    given, of_the_dry_run = options_of_a_dry_run(recipe_arguments(recipe, tmp_path, DRY_RUN="1", **variables))
    assert of_the_dry_run == of_the_run
    assert given == ["--kind", recipe.rpartition("_")[2], "--device", SETTINGS[setting]["DEVICE"]]


def test_several_nodes_are_not_asked_for_their_rank(tmp_path: Path) -> None:
    variables = {"DEVICE": "gpu", "TRAIN_FILES": "/train.parquet", "NNODES": "4"}
    assert "trainer.nnodes=4" in recipe_arguments("longvt_sft", tmp_path, DRY_RUN="1", **variables)


def test_without_a_cold_start_the_base_model_stands_in(tmp_path: Path) -> None:
    arguments = recipe_arguments("longvt_grpo", tmp_path, DEVICE="cpu", DRY_RUN="1", STAND_IN="/from/outside")
    given, options = options_of_a_dry_run(arguments)
    assert given[-2:] == ["--stand-in", str(tmp_path / "demo_longvt" / "base")]
    assert f"actor_rollout_ref.model.path='{tmp_path}/longvt_sft/huggingface'" in options
    assert not (tmp_path / "longvt_grpo").exists() and not (tmp_path / "longvt_sft").exists()


def test_a_rehearsal_is_checked_once_and_not_resumed(tmp_path: Path) -> None:
    arguments = recipe_arguments("framethinker_grpo", tmp_path, DEVICE="cpu", DRY_RUN="1", REHEARSE="1")
    _, options = options_of_a_dry_run(arguments)
    assert "trainer.save_freq=1" in options
