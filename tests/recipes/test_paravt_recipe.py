"""examples/papers/paravt: what its recipes hand to verl."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.examples.conftest import EXAMPLES
from tests.recipes.options import SETTINGS, recipe_arguments

FOLDER = EXAMPLES / "papers" / "paravt"


@pytest.mark.parametrize("setting", ["cpu", "gpu"])
def test_the_recipe_trains_the_package(setting: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    arguments = recipe_arguments(str(FOLDER / "paravt_grpo"), tmp_path, MODEL_PATH=str(tmp_path), **SETTINGS[setting])
    assert "actor_rollout_ref.rollout.agent.default_agent_loop=paravt" in arguments
    assert f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{FOLDER}/agent_loops.yaml'" in arguments
    fields = "actor_rollout_ref.rollout.custom.video_tools.paravt"
    gating = f"+{fields}.frame_choices=[4,8]"
    assert (gating in arguments) == (setting == "cpu")
    assert (f"+{fields}.max_turn_tokens={160 if setting == 'cpu' else 2048}") in arguments


def test_the_cold_start_is_the_packages(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    arguments = recipe_arguments(str(FOLDER / "paravt_grpo"), tmp_path, DEVICE="cpu")
    assert any("paravt_sft" in argument for argument in arguments)
