"""Numbers that verl divides. That those of recipes can be divided is tested in tests/recipes/test_configuration.py."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from omegaconf import OmegaConf

from verl_video_tools.launch.checks.report import Check, PlannedRun, Status
from verl_video_tools.launch.checks.run import check_sizes

ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
GRPO: dict[str, Any] = {
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "trainer.v1.trainer_mode": "video_tools",
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.model.path": "qwen",
    "data.train_batch_size": 16,
    f"{ACTOR}.ppo_mini_batch_size": 8,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2,
    f"{ACTOR}.ulysses_sequence_parallel_size": 2,
    f"{ACTOR}.use_dynamic_bsz": False,
    f"{ACTOR}.use_kl_loss": True,
    f"{ROLLOUT}.n": 3,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 4,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
    f"{REF}.log_prob_micro_batch_size_per_gpu": 4,
    f"{REF}.log_prob_use_dynamic_bsz": False,
}
"""4 training ranks, with mini-batches of 24 rollouts and batches of 48."""
SFT: dict[str, Any] = {
    "trainer.nnodes": 2,
    "trainer.n_gpus_per_node": 4,
    "engine.ulysses_sequence_parallel_size": 1,
    "data.train_batch_size": 32,
    "data.micro_batch_size_per_gpu": 2,
    "data.use_dynamic_bsz": False,
}


def sizes(program: Literal["grpo", "sft"], **options: Any) -> Check:
    config = OmegaConf.create()
    for option, value in ((GRPO if program == "grpo" else SFT) | options).items():
        OmegaConf.update(config, option, value)
    (check,) = check_sizes(PlannedRun(program, config, "gpu", thorough=False))
    return check


@pytest.mark.parametrize(
    ("program", "options", "fix"),
    [
        ("grpo", {f"{ACTOR}.ulysses_sequence_parallel_size": 3}, f"{ACTOR}.ulysses_sequence_parallel_size=2"),
        ("grpo", {f"{ACTOR}.ppo_mini_batch_size": 6}, f"{ACTOR}.ppo_mini_batch_size=8"),
        ("grpo", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 5}, f"{ACTOR}.ppo_micro_batch_size_per_gpu=3"),
        ("grpo", {f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 5}, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4"),
        ("grpo", {f"{REF}.log_prob_micro_batch_size_per_gpu": 7}, f"{REF}.log_prob_micro_batch_size_per_gpu=6"),
        ("sft", {"engine.ulysses_sequence_parallel_size": 3}, "engine.ulysses_sequence_parallel_size=2"),
        ("sft", {"data.train_batch_size": 4, "data.micro_batch_size_per_gpu": 1}, "data.train_batch_size=8"),
        ("sft", {"data.micro_batch_size_per_gpu": 3}, "data.micro_batch_size_per_gpu=2"),
    ],
)
def test_what_cannot_be_divided_is_told_with_the_value_to_set(
    program: Literal["grpo", "sft"], options: dict[str, Any], fix: str
) -> None:
    check = sizes(program, **options)
    assert (check.status, check.fix) == (Status.FAILED, fix)
    option, _, value = fix.partition("=")
    assert sizes(program, **options | {option: int(value)}).status is Status.OK


def test_each_rank_needs_two_rollouts() -> None:
    one = {
        "data.train_batch_size": 1,
        f"{ACTOR}.ppo_mini_batch_size": 1,
        f"{ROLLOUT}.n": 4,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{REF}.log_prob_use_dynamic_bsz": True,
    }
    check = sizes("grpo", **one)
    assert check.status is Status.FAILED and check.fix == "data.train_batch_size=2"
    assert sizes("grpo", **one | {"data.train_batch_size": 2}).status is Status.OK


def test_what_no_step_divides_may_be_any_number() -> None:
    ref = {f"{REF}.log_prob_micro_batch_size_per_gpu": 7}
    assert sizes("grpo", **ref, **{f"{ACTOR}.use_kl_loss": False}).status is Status.OK
    filled = {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 5, f"{ACTOR}.use_dynamic_bsz": True}
    assert sizes("grpo", **filled).status is Status.OK


def test_what_verl_leaves_out_is_no_fault() -> None:
    rest = {"data.train_batch_size": 36, "data.micro_batch_size_per_gpu": 2}  # verl trains on 32 of them
    assert sizes("sft", **rest).status is Status.OK
    assert sizes("grpo", **{"trainer.val_only": True, f"{ACTOR}.ppo_mini_batch_size": 7}).status is Status.OK
    old_log_probs = {f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 5}
    assert sizes("grpo", **old_log_probs, **{"algorithm.rollout_correction.bypass_mode": True}).status is Status.OK
    ref = {f"{REF}.log_prob_micro_batch_size_per_gpu": 7}
    assert sizes("grpo", **ref, **{"actor_rollout_ref.model.lora_rank": 8}).status is Status.OK


def test_a_separate_engine_updates_by_mini_batches() -> None:
    """24 rollouts for 4 ranks, whatever the batch has."""
    separate = {"trainer.v1.trainer_mode": "video_tools_separate_async"}
    assert sizes("grpo", **separate, **{f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 6}).status is Status.FAILED
    both = {f"{name}.log_prob_micro_batch_size_per_gpu": 6 for name in (ROLLOUT, REF)}
    assert sizes("grpo", **separate, **both).status is Status.OK
