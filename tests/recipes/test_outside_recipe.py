"""A recipe outside this repository sources the common ones, for a method of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import RECIPES, recipe_arguments

RECIPE = f"""
set -euo pipefail
METHOD=frugal
METHOD_DIR=$(dirname "${{BASH_SOURCE[0]}}")
AGENT_LOOPS=$METHOD_DIR/agent_loops.yaml
SFT_RECIPE=$METHOD_DIR/frugal_sft.sh
source "{RECIPES}/common.sh"
TRAIN_BATCH_SIZE=4 MINI_BATCH_SIZE=4 MICRO_BATCH_SIZE=8 LEARNING_RATE=1e-4
MAX_PROMPT_LENGTH=512 MAX_RESPONSE_LENGTH=512 MAX_MODEL_LEN=1024 MAX_IMAGES=8
METHOD_OPTIONS=()
source "$REPO/recipes/grpo.sh"
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "frugal_grpo.sh").write_text(RECIPE)
    (folder / "synthetic.txt").write_text("# How the tiny model is asked.\nlook_price=0.3\n")
    return folder


def test_fields_and_agent_loops_are_those_of_the_package(package: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    arguments = recipe_arguments(str(package / "frugal_grpo"), tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path))
    assert "+actor_rollout_ref.rollout.custom.video_tools.frugal.look_price=0.3" in arguments
    loops = f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{package}/agent_loops.yaml'"
    assert loops in arguments
    assert "actor_rollout_ref.rollout.agent.default_agent_loop=frugal" in arguments
    assert "--agent-name=frugal" in (tmp_path / "vvt.txt").read_text().splitlines()


def test_the_cold_start_is_the_package_s(package: Path, tmp_path: Path) -> None:
    (package / "frugal_sft.sh").write_text('exec "$PYTHON" -m verl_video_tools.verl_plugin.sft_trainer "$SFT_DIR"\n')
    arguments = recipe_arguments(str(package / "frugal_grpo"), tmp_path, DEVICE="cpu")
    assert arguments == [f"{tmp_path}/frugal_sft"]
