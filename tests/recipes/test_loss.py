"""How recipes sum up their loss: as published, and the same however a batch is cut."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import DOCS, SETTINGS, Composed, grpo_recipes
from verl_video_tools.config import config_path

LOSS_AGGREGATION = {
    "framethinker_grpo": "token-mean",
    "videozoomer_grpo": "seq-mean-token-mean",
    "longvt_grpo": "seq-mean-token-mean",
    "videobrain_grpo": "token-mean",
    "framemind_grpo": "token-mean",
    "compose_grpo": "token-mean",
    "mixed_grpo": "token-mean",
}
"""As published; docs/training.md names the sources."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", grpo_recipes())
@pytest.mark.parametrize("setting", SETTINGS)
def test_how_a_recipe_sums_up_its_loss(recipe: str, setting: str, composed: Composed) -> None:
    """The recipe's group says so itself, and verl's worker reads it."""
    actor = composed(recipe, setting).actor_rollout_ref.actor
    assert actor.loss_agg_mode == LOSS_AGGREGATION[recipe]
    assert f"loss_agg_mode: {LOSS_AGGREGATION[recipe]}" in config_path(f"video_tools/{recipe}").read_text()
    row = next(
        line for line in (DOCS / "training.md").read_text().splitlines() if line.startswith(f"| `recipes/{recipe}.sh`")
    )
    assert f"`{LOSS_AGGREGATION[recipe]}`" in row


def test_a_mean_per_rollout_is_one_however_the_batch_is_cut() -> None:
    """verl's own sums: micro-batches of one rollout add up to the mean of the rollouts' means."""
    import torch
    from verl.trainer.ppo.core_algos import agg_loss

    lengths = (1, 3, 8)
    loss_BT = torch.arange(24.0).reshape(3, 8)
    mask_BT = torch.stack([torch.arange(8) < length for length in lengths]).float()
    options = {"loss_agg_mode": LOSS_AGGREGATION["longvt_grpo"], "dp_size": 1, "global_batch_size": 3}
    whole = agg_loss(loss_BT, mask_BT, **options)
    alone = sum(agg_loss(loss_BT[i : i + 1], mask_BT[i : i + 1], **options) for i in range(3))
    expected = sum(loss_BT[i, :length].mean() for i, length in enumerate(lengths)) / 3
    torch.testing.assert_close(whole, expected)
    torch.testing.assert_close(alone, expected)
