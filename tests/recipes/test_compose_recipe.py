"""recipes/compose_*.sh: the composition is checked before anything starts, and is the same in all stages."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import Composed, recipe_arguments
from verl_video_tools.methods.compose.composition import load_composition
from verl_video_tools.verl_plugin.settings import method_from_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "compose" / "longvt_search_ladder.yaml"
FILE = "actor_rollout_ref.rollout.custom.video_tools.compose.file"


@pytest.mark.slow
def test_without_a_file_it_is_one_of_the_package(composed: Composed) -> None:
    for setting, name in (("cpu", "demo"), ("gpu", "default")):
        rollout = composed("compose_grpo", setting).actor_rollout_ref.rollout
        method = method_from_config("compose", rollout)
        assert method.made_of() == method_from_config("compose", rollout).made_of()
        assert getattr(method, "file", None) == name
        assert rollout.limit_images == method.recipe_budget.images


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["cpu", "gpu"])
def test_a_users_file_gives_lengths_images_and_method(setting: str, composed: Composed, tmp_path: Path) -> None:
    odd = tmp_path / "my=file, (a) it's.yaml"
    odd.write_text(EXAMPLE.read_text())
    (tmp_path / "prompt.txt").write_text("Look.")
    config = composed("compose_grpo", setting, COMPOSE=str(odd), RETRIEVAL_MODEL="siglip")
    limits = load_composition(str(odd)).limits
    assert (config.data.max_prompt_length, config.data.max_response_length) == (16384, 24576)
    rollout = config.actor_rollout_ref.rollout
    assert rollout.limit_images == limits.images == 192
    assert rollout.max_model_len == 16384 + 24576
    method = method_from_config("compose", rollout)
    assert getattr(method, "file", None) == str(odd) and method.searches
    assert rollout.custom.video_tools.retrieval.model == "siglip"


@pytest.mark.slow
def test_the_cold_start_within_a_run_is_of_the_same_file(tmp_path: Path) -> None:
    for variables in ({"COMPOSE": "spatial"}, {}):
        arguments = recipe_arguments("compose_grpo", tmp_path, DEVICE="cpu", **variables)
        expected = variables.get("COMPOSE", "demo")
        assert f"+data.video_tools.compose.file='{expected}'" in arguments, "fine-tuning comes first"
        told = (tmp_path / "vvt.txt").read_text().splitlines()
        assert f"--set=compose.file={expected}" in told and "export-sft" in told


def test_the_composition_for_parts_of_frames_gets_videos_that_need_it(tmp_path: Path) -> None:
    for name in ("spatial", "demo"):
        arguments = recipe_arguments("compose_sft", tmp_path, DEVICE="cpu", COMPOSE=name, TRAIN_FILES="rows.parquet")
        assert f"+data.video_tools.compose.file='{name}'" in arguments
        told = (tmp_path / "vvt.txt").read_text().splitlines()
        assert told[0] == "demo" and ("--spatial" in told) == (name == "spatial")


@pytest.mark.slow
def test_a_broken_file_stops_the_recipe_before_anything_starts(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(EXAMPLE.read_text().replace("plan: ladder", "plan: stairs"))
    for recipe in ("compose_grpo", "compose_sft"):
        with pytest.raises(AssertionError, match=r"broken\.yaml: initial_frames\.plan: there is no plan 'stairs'"):
            recipe_arguments(recipe, tmp_path, DEVICE="cpu", COMPOSE=str(broken))
    assert not (tmp_path / "vvt.txt").exists()
