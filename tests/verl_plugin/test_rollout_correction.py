"""Importance weights and masks of verl's rollout correction, as the recipes set its presets, against formulas."""

# Imports after a skip: what they name is not there on every machine.

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

pytest.importorskip("verl", reason="verl computes the weights")
from transfer_queue import KVBatchMeta
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.trainer.ppo.v1 import trainer_base

from tests.verl_plugin.trainer_batches import WHOLE_BATCH, MemoryQueue, bare_trainer, update_filter
from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin.settings import pack_record

BOUND = 2.0
LOG_RATIOS = {
    "a_0_0": [0.1, None, -0.2, 0.0],  # a rollout of two sequences, one per turn
    "a_0_1": [0.9, 0.3],
    "a_1_0": [None, 1.5, -1.4, None, 0.25],
    "a_2_0": [-0.5, -0.5],
    "a_3_0": [5.0, 5.0, 5.0],  # flagged
    "b_0_0": [0.0, 0.69],
    "b_1_0": [0.8, 0.8, None, -3.0],
}
"""By key `<group>_<rollout>_<sequence>`: actor's less engine's log-probability; None where the mask is 0."""
FLAGGED = "a_3_0"


def corrected(preset: RolloutCorrectionConfig, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryQueue, dict[str, float]]:
    """The rows after our trainer's advantage step, and its metrics. Masked tokens have wild log-probabilities."""
    rows = {}
    for key, ratios in LOG_RATIOS.items():
        mask = torch.tensor([int(ratio is not None) for ratio in ratios])
        engine = torch.linspace(-1.0, -0.1, len(ratios))
        flags = ["aborted"] if key == FLAGGED else []
        rows[key] = {
            "uid": key[0],
            "response_mask": mask,
            "loss_mask": mask.clone(),
            "rm_scores": torch.tensor([0.0] * (len(ratios) - 1) + [float(len(ratios))]),
            "rollout_log_probs": engine,
            "old_log_probs": engine + torch.tensor([9.0 if ratio is None else ratio for ratio in ratios]),
            "extra_fields": {
                **pack_record(Trajectory(method="framethinker", question="?", flags=flags, error="why")),
                "reward_extra_info": {},
            },
        }
    queue = MemoryQueue(rows)
    monkeypatch.setattr(queue_port, "tq", queue)
    monkeypatch.setattr(trainer_base, "tq", queue)
    trainer = bare_trainer()  # the step needs nothing but a config
    algorithm = {"use_kl_in_reward": False, "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0}
    algorithm["rollout_correction"] = {name: getattr(preset, name) for name in preset}
    sections = {"rollout": {"n": 4, "custom": {}}, "actor": {"ppo_mini_batch_size": WHOLE_BATCH}}
    trainer.config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": sections})
    trainer.global_steps = 1
    trainer._updates = update_filter(trainer)
    metrics: dict[str, float] = {}
    batch = KVBatchMeta(keys=list(rows), tags=[{} for _ in rows], partition_id="train")
    trainer._compute_advantage(batch, metrics)
    return queue, metrics


def token_weights(ratios: list[float | None]) -> list[float]:
    return [0.0 if ratio is None else min(math.exp(ratio), BOUND) for ratio in ratios]


def sequence_ratio(ratios: list[float | None]) -> float:
    return math.prod(math.exp(ratio) for ratio in ratios if ratio is not None)


def sequence_weights(ratios: list[float | None]) -> list[float]:
    return [0.0 if ratio is None else min(sequence_ratio(ratios), BOUND) for ratio in ratios]


@pytest.mark.parametrize(
    ("preset", "weights", "rejects"),
    [
        (RolloutCorrectionConfig.decoupled_token_is(), token_weights, False),
        (RolloutCorrectionConfig.decoupled_seq_is(), sequence_weights, False),
        (RolloutCorrectionConfig.decoupled_seq_is_rs(), sequence_weights, True),
    ],
    ids=["token_tis", "sequence_tis", "mis"],
)
def test_weights_and_masks_are_those_of_the_formula(
    preset: RolloutCorrectionConfig,
    weights: Callable[[list[float | None]], list[float]],
    rejects: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, metrics = corrected(preset, monkeypatch)
    kept = []
    for key, ratios in LOG_RATIOS.items():
        keeps = key != FLAGGED and (not rejects or 1 / BOUND <= sequence_ratio(ratios) <= BOUND)
        expected = [0.0] * len(ratios) if key == FLAGGED else weights(ratios)
        torch.testing.assert_close(queue.rows[key]["rollout_is_weights"], torch.tensor(expected), msg=key)
        mask = [int(keeps and ratio is not None) for ratio in ratios]
        assert queue.rows[key]["response_mask"].tolist() == mask, key
        kept.append(keeps)
    assert kept.count(False) == (4 if rejects else 1), "one sequence is out of bounds above, two below"
    if rejects:
        assert metrics["rollout_corr/rollout_rs_seq_masked_fraction"] == pytest.approx(3 / 7)


def test_a_rejected_last_sequence_leaves_the_advantage_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl reads a rollout's advantage there, and would find 0."""
    expected, _ = corrected(RolloutCorrectionConfig.disabled(), monkeypatch)
    queue, _ = corrected(RolloutCorrectionConfig.decoupled_seq_is_rs(), monkeypatch)
    assert queue.rows["a_0_0"]["response_mask"].any() and not queue.rows["a_0_1"]["response_mask"].any()
    for key, row in queue.rows.items():
        of_group = expected.rows[key]["advantages"] * row["response_mask"]
        torch.testing.assert_close(row["advantages"], of_group, atol=1e-5, rtol=1e-5, msg=key)
    assert expected.rows["a_0_0"]["advantages"][0] != 0.0


def test_without_correction_the_gap_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, metrics = corrected(RolloutCorrectionConfig.disabled(), monkeypatch)
    assert not any("rollout_is_weights" in row for row in queue.rows.values())
    assert {"rollout_corr/kl", "rollout_corr/k3_kl", "rollout_corr/chi2_token"} <= metrics.keys()


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_the_loss_is_weighted_and_a_rejected_sequence_moves_no_other_ones_share(mode: str) -> None:
    """A rejected one still counts where the loss is divided by tokens or sequences, since `loss_mask` stays."""
    lengths, advantages, weights = [2, 4, 3], [1.0, -0.5, 2.0], [0.5, 2.0, 1.5]
    loss_mask = torch.stack([torch.arange(4) < length for length in lengths]).float()
    response_mask = loss_mask * torch.tensor([[1.0], [1.0], [0.0]])  # the last one is rejected
    old = torch.full((3, 4), -1.0)
    log_prob = old.clone().requires_grad_()
    batch: dict[str, Any] = {"dp_size": 1, "batch_num_tokens": 9, "global_batch_size": 3, "loss_scale_factor": None}
    config = SimpleNamespace(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2, global_batch_info=batch)
    config.get = lambda name, default: default
    of_rows = [torch.tensor(values)[:, None].expand(3, 4) for values in (advantages, weights)]
    loss, _ = compute_policy_loss_vanilla(
        old, log_prob, of_rows[0], response_mask, mode, config, rollout_is_weights=of_rows[1] * response_mask
    )
    shares = [1 / 9] * 3 if mode == "token-mean" else [1 / 3 / length for length in lengths]
    gradients = [
        [
            -advantages[row] * weights[row] * shares[row] if row < 2 and token < lengths[row] else 0.0
            for token in range(4)
        ]
        for row in range(3)
    ]
    loss.backward()
    assert float(loss.detach()) == pytest.approx(sum(map(sum, gradients)))
    torch.testing.assert_close(log_prob.grad, torch.tensor(gradients))
