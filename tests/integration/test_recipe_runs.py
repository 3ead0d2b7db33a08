"""Every recipe, for two steps: `make test-recipes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import REPO, assert_succeeded, run_recipe
from verl_video_tools.trace.summary import step_summaries

pytestmark = pytest.mark.recipes

SFT_RECIPES = sorted(path.stem for path in (REPO / "recipes").glob("*_sft.sh"))
GRPO_RECIPES = sorted(path.stem for path in (REPO / "recipes").glob("*_grpo.sh"))


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("recipe", SFT_RECIPES)
def test_sft_recipe(recipe: str, output_dir: Path) -> None:
    folder = output_dir / f"two_steps_{recipe}"
    assert_succeeded(run_recipe(folder.name, recipe, output_dir, "trainer.total_training_steps=2", SFT_DIR=str(folder)))
    assert (folder / "huggingface" / "config.json").exists()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("recipe", GRPO_RECIPES)
def test_grpo_recipe(recipe: str, output_dir: Path, sft_model: Path) -> None:
    run = run_recipe(
        f"two_steps_{recipe}", recipe, output_dir, "trainer.total_training_steps=2", MODEL_PATH=str(sft_model)
    )
    assert_succeeded(run)
    assert sorted(step_summaries(run.folder / "trajectories")) == [1, 2]
    assert (run.folder / "huggingface" / "config.json").exists()
