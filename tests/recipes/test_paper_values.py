"""What the papers give, as the recipes of their methods have it on a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import (
    Composed,
)
from verl_video_tools.core.types import Sample, VideoInfo
from verl_video_tools.methods import get_method

pytestmark = pytest.mark.slow


def test_paper_values_of_framethinker(composed: Composed) -> None:
    config = composed("framethinker_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert config.data.train_batch_size == actor.ppo_mini_batch_size == 32
    assert config.actor_rollout_ref.rollout.n == 8
    assert actor.optim.lr == 5e-7
    assert actor.use_kl_loss is False and config.algorithm.use_kl_in_reward is False
    assert actor.clip_ratio_low == actor.clip_ratio_high == 0.2 and actor.loss_agg_mode == "token-mean"
    assert config.algorithm.norm_adv_by_std_in_grpo is True
    assert config.trainer.nnodes == 2 and config.trainer.n_gpus_per_node == 8


def test_paper_values_of_videozoomer(composed: Composed) -> None:
    config = composed("videozoomer_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, config.actor_rollout_ref.rollout.n) == (
        128,
        32,
        16,
    )
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.loss_agg_mode) == (0.2, 0.27, "seq-mean-token-mean")
    assert (actor.optim.lr, actor.entropy_coeff) == (1e-6, 0.001)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert config.algorithm.filter_groups.enable is True
    assert config.data.mm_processor_kwargs == {"min_pixels": 25_088, "max_pixels": 100_352}


async def test_dynamic_sampling_of_videozoomer(composed: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's own filter drops groups whose rollouts all earn the same, on rewards as our manager returns them."""
    import torch
    from verl.trainer.ppo.v1 import replay_buffer
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from verl_video_tools.core.types import StopReason, Trajectory, Turn

    method = get_method("videozoomer")
    sample = Sample(question="?", ground_truth="B", video_path="v.mp4", question_type="mc")
    video = VideoInfo(9.0, 90, 10.0, 64, 36)
    flagged = method.zero_reward()["score"]

    async def rewards(*answers: str) -> list[float]:
        turns = [[Turn(f"<answer>{text}</answer>", answer=text, well_formed=True)] for text in answers]
        rollouts = [
            Trajectory("videozoomer", "?", video, turns=turn, stop_reason=StopReason.ANSWER, answer=turn[-1].answer)
            for turn in turns
        ]
        return [(await method.score(rollout, sample))["score"] for rollout in rollouts]

    groups = {
        "right": await rewards("B", "B", "B"),
        "wrong": await rewards("A", "C", "D"),
        "mixed": await rewards("A", "B", "B"),
        "flagged": [flagged] * 3,  # as after a judge's failure on every rollout
        "partly": [*(await rewards("B", "A")), flagged],
    }
    scores = {f"{uid}_{i}_0": score for uid, group in groups.items() for i, score in enumerate(group)}

    def kv_batch_get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        assert select_fields == ["rm_scores"]
        return {"rm_scores": [torch.tensor([0.0, scores[key]]) for key in keys]}

    config = composed("videozoomer_grpo", "cpu")
    monkeypatch.setattr(replay_buffer.tq, "kv_batch_get", kv_batch_get)
    metric = PPOTrainer._resolve_filter_groups_metric(SimpleNamespace(config=config))
    buffer = SimpleNamespace(
        filter_groups_metric=metric,
        finished_keys={"train": set(groups)},
        partitions={"train": dict.fromkeys(scores)},
        _dapo_classification_cache={"train": {}},
    )
    dropped, _ = ReplayBuffer._dapo_filtered_keys(buffer, "train")
    assert dropped == {"right", "wrong", "flagged"}


def test_paper_values_of_longvt(composed: Composed) -> None:
    config = composed("longvt_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size) == (16, 8)
    assert config.actor_rollout_ref.rollout.n == 16
    assert actor.optim.lr == 1e-6
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert config.algorithm.use_kl_in_reward is False and actor.entropy_coeff == 0
    assert config.trainer.total_epochs == 5 and actor.ulysses_sequence_parallel_size == 2


def test_paper_values_of_videobrain(composed: Composed) -> None:
    config = composed("videobrain_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert config.data.train_batch_size == actor.ppo_mini_batch_size == 32
    assert config.actor_rollout_ref.rollout.n == 8
    assert actor.optim.lr == 1e-6 and actor.freeze_vision_tower is True
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert actor.entropy_coeff == 0.001 and config.algorithm.use_kl_in_reward is False
    assert config.trainer.total_epochs == 1 and config.trainer.save_freq == 10
    options = config.actor_rollout_ref.rollout.custom.video_tools
    assert options.retrieval.model == "google/siglip2-base-patch16-224"
    assert options.retrieval.num_threads == 16, "ours"
