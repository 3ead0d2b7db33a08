"""What our trainers read and change of a batch's rows around verl's advantages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin.settings import unpack_record
from verl_video_tools.verl_plugin.trainer_packing import keys_of
from verl_video_tools.verl_plugin.trainer_records import batch_row
from verl_video_tools.verl_plugin.trainer_rows import RolloutRows, equal_groups

_EPSILON = 1e-6
"""Added to the deviation of a group, as verl does."""


def scored(keys: list[str], partition_id: str) -> tuple[list[Trajectory], list[Mapping[str, Any]]]:
    """Records of rollouts, and the breakdown of their rewards.

    Args:
        keys: of the rollouts' last sequences.
    """
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["extra_fields"])
    extra_fields = [batch_row(data["extra_fields"], i) for i in range(len(keys))]
    infos = [fields.get("reward_extra_info") or {} for fields in extra_fields]
    return [unpack_record(fields) for fields in extra_fields], infos


def summed(name: str, rollouts: Sequence[RolloutRows], partition_id: str) -> list[float]:
    """A field of tokens, summed up over the last sequence of each rollout."""
    keys = [rollout.keys[-1] for rollout in rollouts]
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=[name])
    return [float(data[name][i].sum()) for i in range(len(keys))]


def exclude(rollouts: Sequence[RolloutRows], partition_id: str) -> None:
    """A group of its own keeps a rollout out of its siblings' mean, a zero mask out of the loss."""
    keys = keys_of(rollouts)
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["response_mask"])
    zeros = data["response_mask"] * 0
    fields = TensorDict({"response_mask": zeros, "loss_mask": zeros.clone()}, batch_size=len(keys))
    fields["uid"] = [f"flagged_{rollout.keys[-1]}" for rollout in rollouts for _ in rollout.keys]
    tq.kv_batch_put(keys=keys, partition_id=partition_id, fields=fields)


def correct_by_group(rollouts: Sequence[RolloutRows], algorithm: DictConfig, partition_id: str) -> None:
    """Correct verl's advantages where its comparison of siblings does not hold: those of rollouts whose last sequence
    was rejected, and of groups in which all earned the same.

    Args:
        rollouts: that count.
        algorithm: the section of the configuration.
    """
    # What verl has compared: rewards, less the penalty for leaving the reference where that is part of them.
    rewards = summed("token_level_rewards" if algorithm.use_kl_in_reward else "rm_scores", rollouts, partition_id)
    rejects = OmegaConf.select(algorithm, "rollout_correction.rollout_rs") is not None
    if rejects and any(len(rollout.keys) > 1 for rollout in rollouts):
        credit_sequences(rollouts, rewards, algorithm.get("norm_adv_by_std_in_grpo", True), partition_id)
    equal = equal_groups([rollout.uid for rollout in rollouts], rewards)
    zero_advantages(keys_of([rollout for rollout in rollouts if rollout.uid in equal]), partition_id)


def zero_advantages(keys: list[str], partition_id: str) -> None:
    if not keys:
        return
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["advantages", "returns"])
    fields = TensorDict({name: data[name] * 0 for name in ("advantages", "returns")}, batch_size=len(keys))
    tq.kv_batch_put(keys=keys, partition_id=partition_id, fields=fields)


def write_no_advantages(batch: KVBatchMeta, with_token_rewards: bool) -> None:
    """What verl's advantage step writes, for a batch that updates nothing.

    Args:
        with_token_rewards: rewards by token are theirs, too (`use_kl_in_reward`); here those that were earned.
    """
    earned = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["rm_scores"])["rm_scores"]
    fields = TensorDict({"advantages": earned * 0, "returns": earned * 0}, batch_size=len(batch.keys))
    if with_token_rewards:
        fields["token_level_rewards"] = earned
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def credit_sequences(
    rollouts: Sequence[RolloutRows], rewards: Sequence[float], divides_by_std: bool, partition_id: str
) -> None:
    """Write the advantage of each rollout into all its sequences. verl reads it at the first trained token of the last
    sequence, and takes 0 for the whole rollout where rejection has left no such token.

    Args:
        rollouts: that count.
        rewards: of each, which verl has compared.
        divides_by_std: as GRPO does; Dr. GRPO (arXiv 2503.20783) does not.
    """
    keys = keys_of(rollouts)
    scores: dict[str, list[float]] = {}
    for rollout, reward in zip(rollouts, rewards, strict=True):
        scores.setdefault(rollout.uid, []).append(reward)
    means = {uid: fmean(of_group) for uid, of_group in scores.items()}
    scales = {
        uid: stdev(of_group) + _EPSILON if divides_by_std and len(of_group) > 1 else 1.0
        for uid, of_group in scores.items()
    }
    advantages = [
        (reward - means[rollout.uid]) / scales[rollout.uid]
        for rollout, reward in zip(rollouts, rewards, strict=True)
        for _ in rollout.keys
    ]
    masks = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["response_mask"])["response_mask"]
    values = [advantage * masks[i].float() for i, advantage in enumerate(advantages)]
    packed = torch.nested.as_nested_tensor(values, layout=torch.jagged)
    fields = TensorDict({name: packed.clone() for name in ("advantages", "returns")}, batch_size=len(keys))
    tq.kv_batch_put(keys=keys, partition_id=partition_id, fields=fields)
