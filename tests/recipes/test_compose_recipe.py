"""recipes/compose_*.sh: the composition is checked before anything starts, and is the same in all stages."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import CACHED, Composed, recipe_plan
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.environment import quoted
from verl_video_tools.methods.compose.composition import load_composition
from verl_video_tools.verl_plugin.settings import method_from_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "compose" / "longvt_search_ladder.yaml"


@pytest.mark.slow
def test_without_a_file_it_is_one_of_the_package(composed: Composed) -> None:
    for setting, name in (("cpu", "demo"), ("gpu", "default")):
        config = composed("compose_grpo", setting)
        rollout = config.actor_rollout_ref.rollout
        method = method_from_config("compose", rollout)
        assert method.provenance() == method_from_config("compose", rollout).provenance()
        assert getattr(method, "file", None) == name
        assert config.video_tools.max_images == method.recipe_budget.images


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["cpu", "gpu"])
def test_a_users_file_gives_lengths_images_and_method(setting: str, composed: Composed, tmp_path: Path) -> None:
    odd = tmp_path / "my=file, (a) it's.yaml"
    odd.write_text(EXAMPLE.read_text())
    (tmp_path / "prompt.txt").write_text("Look.")
    options = (f"video_tools.compose.file={quoted(odd)}", "video_tools.retrieval.model=siglip")
    config = composed("compose_grpo", setting, *options)
    rollout = config.actor_rollout_ref.rollout
    method = method_from_config("compose", rollout)
    assert getattr(method, "file", None) == str(odd) and method.searches
    assert rollout.custom.video_tools.retrieval.model == "siglip"
    if setting == "gpu":
        limits = load_composition(str(odd)).limits
        assert (config.data.max_prompt_length, config.data.max_response_length) == (16384, 24576)
        assert config.video_tools.max_images == limits.images == 192
        assert rollout.max_model_len == 16384 + 24576


@pytest.mark.slow
def test_a_broken_file_stops_the_recipe_before_anything_starts(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(EXAMPLE.read_text().replace("plan: ladder", "plan: stairs"))
    option = f"video_tools.compose.file={quoted(broken)}"
    with pytest.raises(UsageError, match=r"broken\.yaml: initial_frames\.plan: there is no plan 'stairs'"):
        recipe_plan("compose_grpo", tmp_path, CACHED, option, DEVICE="gpu")
