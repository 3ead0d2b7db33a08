"""Every constant of reinforcement learning of the five papers, as their recipes hand it to verl on GPUs.

Each value stands beside its source: the paper, its published script, or "ours" where neither has one. Where a script
sets nothing, the default of its verl is the published value, and the installed verl has to have the same.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from verl_video_tools.core.method import zero_reward

pytest.importorskip("verl", reason="recipes configure verl")
from omegaconf import OmegaConf

from tests.recipes.options import Composed
from verl_video_tools.core.types import Sample, VideoInfo
from verl_video_tools.methods import get_method

pytestmark = pytest.mark.slow

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
KL_LOSS: dict[str, Any] = {
    f"{ACTOR}.use_kl_loss": True,
    f"{ACTOR}.kl_loss_coef": 0.001,
    f"{ACTOR}.kl_loss_type": "low_var_kl",
}

COMMON: dict[str, Any] = {
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    # LongVT's table 6, FrameMind's table E1 but for the betas; the scripts of the others set none of these.
    f"{ACTOR}.optim.optimizer": "AdamW",
    f"{ACTOR}.optim.betas": [0.9, 0.999],
    f"{ACTOR}.optim.weight_decay": 0.01,
    f"{ACTOR}.optim.clip_grad": 1.0,
    f"{ACTOR}.optim.lr_scheduler_type": "constant",  # VideoZoomer: its script
    f"{ACTOR}.optim.lr_warmup_steps_ratio": 0.0,
    f"{ACTOR}.optim.lr_warmup_steps": -1,
    f"{ACTOR}.ppo_epochs": 1,
    f"{ACTOR}.clip_ratio_c": 3.0,  # VideoZoomer's fork has no second clip: docs/methods/videozoomer.md
    f"{ROLLOUT}.top_k": -1,
}

CONSTANTS: dict[str, dict[str, Any]] = {
    "framethinker_grpo": {  # script where nothing else is named
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # 4.2
        "data.train_batch_size": 32,  # A, "Additional Training Details"
        f"{ACTOR}.ppo_mini_batch_size": 32,
        f"{ROLLOUT}.n": 8,  # A
        f"{ACTOR}.optim.lr": 5e-7,  # 4.2, large scale
        f"{ACTOR}.use_kl_loss": False,
        f"{ACTOR}.entropy_coeff": 0,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.2,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        "algorithm.norm_adv_by_std_in_grpo": True,
        f"{ROLLOUT}.temperature": 1.0,
        f"{ROLLOUT}.top_p": 1.0,
        f"{ACTOR}.freeze_vision_tower": False,
        "data.max_prompt_length": 8192,
        "data.max_response_length": 8192,
        "video_tools.max_images": 60,  # ours: as many as a rollout can show; script: 128
        "data.mm_processor_kwargs": {"min_pixels": 3136, "max_pixels": 235_200},  # ours: the frame sizes of the code
        "trainer.total_epochs": 10,
    },
    "videozoomer_grpo": {  # table 5 where nothing else is named
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # script
        "data.train_batch_size": 128,
        f"{ACTOR}.ppo_mini_batch_size": 32,
        f"{ROLLOUT}.n": 16,
        f"{ACTOR}.optim.lr": 1e-6,
        **KL_LOSS,  # the estimator: script
        f"{ACTOR}.entropy_coeff": 0.001,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.27,
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",  # code: one rollout to a micro-batch
        "algorithm.norm_adv_by_std_in_grpo": True,  # code
        "algorithm.filter_groups.enable": True,  # 4.1
        "algorithm.filter_groups.metric": "reward",  # code
        f"{ROLLOUT}.temperature": 1.0,
        f"{ROLLOUT}.top_p": 1.0,  # code
        f"{ACTOR}.freeze_vision_tower": False,  # code
        "data.max_prompt_length": 20_480,  # script
        "data.max_response_length": 32_768,
        "video_tools.max_images": 128,  # script
        "data.mm_processor_kwargs": {"min_pixels": 25_088, "max_pixels": 100_352},  # script
        "trainer.total_epochs": 20,  # script
    },
    "longvt_grpo": {  # script where nothing else is named
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # 12
        "data.train_batch_size": 16,  # 12, "RL"
        f"{ACTOR}.ppo_mini_batch_size": 8,
        f"{ROLLOUT}.n": 16,  # 12
        f"{ACTOR}.optim.lr": 1e-6,  # table 6
        **KL_LOSS,
        f"{ACTOR}.entropy_coeff": 0,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.2,
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",  # equation 1
        "algorithm.norm_adv_by_std_in_grpo": True,
        f"{ROLLOUT}.temperature": 1.0,  # 12
        f"{ROLLOUT}.top_p": 1.0,
        f"{ACTOR}.freeze_vision_tower": False,
        "data.max_prompt_length": 40_960,  # ours: the frames' times need more than the 36,000 of section 12
        "data.max_response_length": 16_384,  # 12
        "video_tools.max_images": 1152,  # ours: as many as a rollout can show
        "data.mm_processor_kwargs": {"min_pixels": 784, "max_pixels": 50_176},  # data and tool
        "trainer.total_epochs": 5,
    },
    "videobrain_grpo": {  # script where nothing else is named
        "actor_rollout_ref.model.path": "Qwen/Qwen3-VL-8B-Instruct",  # 4.1
        "data.train_batch_size": 32,
        f"{ACTOR}.ppo_mini_batch_size": 32,
        f"{ROLLOUT}.n": 8,
        f"{ACTOR}.optim.lr": 1e-6,
        **KL_LOSS,
        f"{ACTOR}.entropy_coeff": 0.001,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.2,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        "algorithm.norm_adv_by_std_in_grpo": True,
        f"{ROLLOUT}.temperature": 1.0,
        f"{ROLLOUT}.top_p": 1.0,
        f"{ACTOR}.freeze_vision_tower": True,
        "data.max_prompt_length": 8192,
        "data.max_response_length": 16_384,
        "video_tools.max_images": 56,  # ours: as many as a rollout can show; script: 128
        "data.mm_processor_kwargs": {"min_pixels": 4096, "max_pixels": 235_200},  # ours: the frame size of the code
        f"{ROLLOUT}.custom.video_tools.retrieval.model": "google/siglip2-base-patch16-224",  # 4.1
        f"{ROLLOUT}.custom.video_tools.retrieval.num_threads": 16,  # ours
        "trainer.total_epochs": 1,  # 4.1
        "trainer.save_freq": 10,
    },
    "framemind_grpo": {  # table E1 where nothing else is named
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # table E1
        "data.train_batch_size": 64,  # ours: one update per step
        f"{ACTOR}.ppo_mini_batch_size": 64,
        f"{ROLLOUT}.n": 8,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,  # ours; table E1: 4, see below
        f"{ACTOR}.optim.lr": 1e-6,
        **KL_LOSS,
        f"{ACTOR}.entropy_coeff": 0,  # ours
        f"{ACTOR}.clip_ratio_low": 0.2,  # EasyR1, as the other clip ratios
        f"{ACTOR}.clip_ratio_high": 0.3,
        f"{ACTOR}.loss_agg_mode": "token-mean",  # EasyR1
        "algorithm.norm_adv_by_std_in_grpo": False,  # algorithm 1
        f"{ROLLOUT}.temperature": 0.7,
        f"{ROLLOUT}.top_p": 0.9,
        f"{ROLLOUT}.val_kwargs.temperature": 0.01,
        f"{ROLLOUT}.val_kwargs.top_p": 0.95,
        f"{ROLLOUT}.val_kwargs.n": 1,
        f"{ROLLOUT}.val_kwargs.do_sample": True,
        f"{ACTOR}.freeze_vision_tower": False,
        "data.max_prompt_length": 12_288,  # ours
        "data.max_response_length": 16_384,  # ours
        "video_tools.max_images": 128,  # ours: the 100 of the table are too few for two full clips
        "data.mm_processor_kwargs": {"min_pixels": 50_176, "max_pixels": 200_704},
        "trainer.total_epochs": 1,  # ours
    },
}


@pytest.mark.parametrize("recipe", CONSTANTS)
def test_paper_values(recipe: str, composed: Composed) -> None:
    """The model is that of the paper before its cold start."""
    config, expected = composed(recipe, "gpu"), COMMON | CONSTANTS[recipe]
    assert {key: OmegaConf.select(config, key) for key in expected} == expected


def test_the_published_machine_of_framemind(composed: Composed) -> None:
    """Table E1. One GPU of 80 GB holds the model, so that the usual machine has as many servers as GPUs."""
    config = composed("framemind_grpo", "gpu", "+video_tools/machine=published_framemind_grpo")
    assert (config.actor_rollout_ref.rollout.tensor_model_parallel_size, config.trainer.n_gpus_per_node) == (4, 8)


@pytest.mark.parametrize("recipe", CONSTANTS)
def test_the_alarm_of_the_engine_leaves_room_for_renormalised_probabilities(recipe: str, composed: Composed) -> None:
    """An engine that samples from a part of the vocabulary returns probabilities of that part, up to 1 - top_p more."""
    config = composed(recipe, "gpu")
    limit, top_p = config.video_tools.trainer.max_probs_diff, config.actor_rollout_ref.rollout.top_p
    assert limit == pytest.approx(0.05 + 1 - top_p)


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
    flagged = zero_reward(method)["score"]

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
