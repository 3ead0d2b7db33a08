"""examples/papers: what the recipes of each package hand to verl."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from omegaconf import OmegaConf

from tests.examples.conftest import EXAMPLES
from tests.recipes.options import SETTINGS, compose_options, recipe_arguments

PAPERS = sorted(path.name for path in (EXAMPLES / "papers").iterdir() if (path / "pyproject.toml").is_file())
FIELDS = {
    "paravt": {
        "cpu": ["call_frames=16", "frame_choices=[4,8]", "max_turn_tokens=160"],
        "gpu": ["max_turn_tokens=2048"],
    },
    "pixel_reasoner": {"cpu": ["initial_frames=29", "max_turn_tokens=96"], "gpu": ["max_turn_tokens=2048"]},
    "timesearch_r": {"cpu": ["initial_frames=8", "max_turn_tokens=128"], "gpu": []},
}
"""Of the method, as each setting has them."""


def arguments_of(paper: str, stage: str, folder: Path, **variables: str) -> list[str]:
    return recipe_arguments(str(EXAMPLES / "papers" / paper / f"{paper}_{stage}"), folder, **variables)


def model(folder: Path) -> str:
    (folder / "config.json").write_text("{}")
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("paper", PAPERS)
def test_the_recipe_trains_the_package(paper: str, setting: str, tmp_path: Path) -> None:
    arguments = arguments_of(paper, "grpo", tmp_path, MODEL_PATH=model(tmp_path), **SETTINGS[setting])
    assert f"actor_rollout_ref.rollout.agent.default_agent_loop={paper}" in arguments
    loops = EXAMPLES / "papers" / paper / "agent_loops.yaml"
    assert f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{loops}'" in arguments
    named = f"+actor_rollout_ref.rollout.custom.video_tools.{paper}."
    fields = {argument.removeprefix(named) for argument in arguments if argument.startswith(named)}
    prompts = {field for field in fields if field.startswith("prompt_file=")}
    assert bool(prompts) == (setting == "cpu")
    assert fields - prompts == set(FIELDS[paper][setting])
    config = compose_options("ppo_trainer", arguments)
    lengths = config.data.max_prompt_length + config.data.max_response_length
    assert config.actor_rollout_ref.rollout.max_model_len >= lengths


@pytest.mark.parametrize("paper", PAPERS)
def test_a_run_waits_for_no_other_machines_unless_it_is_told_of_them(paper: str, tmp_path: Path) -> None:
    variables = {name: value for name, value in SETTINGS["gpu"].items() if name != "NNODES"}
    arguments = arguments_of(paper, "grpo", tmp_path, MODEL_PATH=model(tmp_path), **variables)
    assert "trainer.nnodes=1" in arguments


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("paper", PAPERS)
def test_the_cold_start_can_be_configured(paper: str, setting: str, tmp_path: Path) -> None:
    """A variable that is set in one setting alone would stop the recipe here."""
    arguments = arguments_of(paper, "sft", tmp_path, MODEL_PATH=model(tmp_path), **SETTINGS[setting])
    config = compose_options("sft_trainer_engine", arguments)
    assert config.data.train_batch_size >= 1 and config.trainer.total_epochs >= 1 and config.optim.lr > 0
    assert (OmegaConf.select(config, "data.mm_processor_kwargs.max_pixels") is not None) == (setting == "gpu")


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_a_run_on_synthetic_videos_starts_with_the_cold_start_of_the_package(paper: str, tmp_path: Path) -> None:
    arguments = arguments_of(paper, "grpo", tmp_path, DEVICE="cpu")
    assert f"trainer.default_local_dir='{tmp_path}/{paper}_sft'" in arguments
