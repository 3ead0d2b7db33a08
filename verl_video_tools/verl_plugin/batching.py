"""A training batch: its rollouts and rows, which groups are sampled again, padding, lengths, and advantages."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer, ReplayBufferAsync

from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin import queue
from verl_video_tools.verl_plugin.queue import KVBatchMeta
from verl_video_tools.verl_plugin.settings import unpack_record

# ----------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class RolloutRows:
    """One rollout of a batch."""

    uid: str
    session_id: int
    keys: tuple[str, ...]
    """Keys of its sequences in order of turns; reward and record go with the last."""


def group_rollouts(keys: Sequence[str]) -> list[RolloutRows]:
    """The rollouts of a batch in order of their first key. Keys of one rollout may come in any order, and apart."""
    indices: dict[tuple[str, int], list[int]] = {}
    for key in keys:
        uid, session_id, index = key.rsplit("_", 2)
        indices.setdefault((uid, int(session_id)), []).append(int(index))
    return [
        RolloutRows(uid, session_id, tuple(f"{uid}_{session_id}_{index}" for index in sorted(members)))
        for (uid, session_id), members in indices.items()
    ]


def is_padding(tag: Mapping[str, Any]) -> bool:
    return bool(tag.get("is_padding", False))


def rollouts_of(batch: KVBatchMeta) -> list[RolloutRows]:
    """The rollouts of a batch, without verl's padding."""
    return group_rollouts([key for key, tag in zip(batch.keys, batch.tags, strict=True) if not is_padding(tag)])


def keys_of(rollouts: Sequence[RolloutRows]) -> list[str]:
    return [key for rollout in rollouts for key in rollout.keys]


# -------------------------------------------------------------------------------------------------- padding and lengths


def deal_padding(batch: KVBatchMeta, num_ranks: int, sequences_per_mini_batch: int) -> None:
    """Complete verl's rows of padding, if there are any, and `deal_masked`."""
    if any(is_padding(tag) for tag in batch.tags):
        complete_padding(batch)
        deal_masked(batch, (), num_ranks, sequences_per_mini_batch)


def deal_masked(batch: KVBatchMeta, masked: Collection[str], num_ranks: int, sequences_per_mini_batch: int) -> bool:
    """Deal rows without a token to train on, `masked` and padding, evenly to the mini-batches of each rank.

    A mini-batch of these alone has no token to take the mean over, or, where sequences are averaged, gradients of 0,
    with which the optimizer still takes a step along its momentum.

    Returns:
        Whether each mini-batch has another row.
    """
    are_masked = [is_padding(tag) or key in masked for key, tag in zip(batch.keys, batch.tags, strict=True)]
    num_mini_batches = max(1, len(batch.keys) // sequences_per_mini_batch)
    batch.reorder(spread_padding(are_masked, num_ranks, num_mini_batches))
    return are_masked.count(False) >= num_mini_batches


def complete_padding(batch: KVBatchMeta) -> None:
    """Make the rows of padding copies, with mask 0, of the shortest sequence.

    verl's have no image, and verl 0.9.1 fails on a micro-batch without any ("'BaseModelOutputWithPooling' object
    has no attribute 'mean'").
    """
    padding = [row for row, tag in enumerate(batch.tags) if is_padding(tag)]
    real = [row for row, tag in enumerate(batch.tags) if not is_padding(tag)]
    shortest = min(real, key=lambda row: batch.tags[row]["seq_len"])
    copied = ["prompts", "responses", "input_ids", "position_ids", "multi_modal_inputs"]
    key, partition_id = batch.keys[shortest], batch.partition_id
    data = queue.read([key], partition_id, *copied)
    fields = {name: queue.cell(data[name], 0) for name in copied}
    zeros = torch.zeros_like(fields["responses"])
    fields |= {"response_mask": zeros, "loss_mask": zeros, "rm_scores": zeros.float()}
    fields |= {"rollout_log_probs": zeros.float()}  # which verl's padding has in every case
    queue.write_rows([batch.keys[row] for row in padding], partition_id, [fields] * len(padding))
    for row in padding:
        batch.tags[row] |= {name: batch.tags[shortest][name] for name in ("prompt_len", "response_len", "seq_len")}


def lengthen_equal(batch: KVBatchMeta, num_ranks: int, pad_token_id: int, log_probs: Sequence[str]) -> None:
    """`lengthen` one sequence of each rank whose sequences are all equally long."""
    rows_per_rank = len(batch.keys) // num_ranks
    for first in range(0, len(batch.keys), rows_per_rank):
        if len({tag["seq_len"] for tag in batch.tags[first : first + rows_per_rank]}) == 1:
            lengthen(batch, first, pad_token_id, log_probs)


def lengthen(batch: KVBatchMeta, row: int, pad_token_id: int, log_probs: Sequence[str]) -> None:
    """Append one masked token to one sequence.

    Args:
        log_probs: names of the fields of log-probabilities that the batch holds.

    TransferQueue packs the (4, L) position ids of a rank's rows as ragged in their second axis if L varies, but in
    their first if all L are equal; verl 0.9.1 (`maybe_fix_3d_position_ids`) assumes the former and fails in the
    update with "split_with_sizes expects split_sizes to sum exactly to".
    """
    values = {"input_ids": pad_token_id, "responses": pad_token_id}
    values |= dict.fromkeys(("response_mask", "loss_mask", "rm_scores", *log_probs), 0)
    key, partition_id = batch.keys[row], batch.partition_id
    data = queue.read([key], partition_id, *values, "position_ids")
    fields = {name: torch.cat([data[name][0], data[name][0].new_tensor([value])]) for name, value in values.items()}
    positions = data["position_ids"][0]
    fields["position_ids"] = torch.cat([positions, positions[..., -1:] + 1], dim=-1)
    queue.write([key], partition_id, {name: value.unsqueeze(0) for name, value in fields.items()})
    tag = batch.tags[row]
    tag["seq_len"], tag["response_len"] = tag["seq_len"] + 1, tag["response_len"] + 1


def spread_padding(is_padding: Sequence[bool], num_ranks: int, num_mini_batches: int) -> list[int]:
    """Order of rows in which padding is dealt evenly to the mini-batches of each rank, and what is none to those of all
    ranks in turn.

    Ranks take consecutive rows, and of these each mini-batch does. Rows stay on their rank.

    Args:
        is_padding: for each row, whether it has no token to train on; their number is a multiple of
            `num_ranks * num_mini_batches`.
    """
    rows_per_rank = len(is_padding) // num_ranks
    order: list[int] = []
    num_dealt = 0
    for first in range(0, len(is_padding), rows_per_rank):
        rows = range(first, first + rows_per_rank)
        others = [row for row in rows if not is_padding[row]]
        dealt = [*others, *(row for row in rows if is_padding[row])]
        for number in range(num_mini_batches):
            order += dealt[(number - num_dealt) % num_mini_batches :: num_mini_batches]
        num_dealt += len(others)
    return order


def equal_groups(uids: Sequence[str], scores: Sequence[float]) -> set[str]:
    """Groups whose rollouts all have one score: there is nothing to compare, and every advantage should be 0.

    verl gives a lone rollout its raw score. In a larger group it subtracts a mean that float32 has rounded and divides
    by a deviation that is nothing but that rounding (1.05 eight times: -0.1 for each).
    """
    found: dict[str, set[float]] = {}
    for uid, score in zip(uids, scores, strict=True):
        found.setdefault(uid, set()).add(score)
    return {uid for uid, values in found.items() if len(values) == 1}


_EPSILON = 1e-6
"""Added to the deviation of a group, as verl does."""


# --------------------------------------------------------------------------------------------- around verl's advantages


def scored(keys: list[str], partition_id: str) -> tuple[list[Trajectory], list[Mapping[str, Any]]]:
    """Records of rollouts, and the breakdown of their rewards.

    Args:
        keys: of the rollouts' last sequences.
    """
    data = queue.read(keys, partition_id, "extra_fields")
    extra_fields = [queue.cell(data["extra_fields"], i) for i in range(len(keys))]
    infos = [fields.get("reward_extra_info") or {} for fields in extra_fields]
    return [unpack_record(fields) for fields in extra_fields], infos


def summed(name: str, rollouts: Sequence[RolloutRows], partition_id: str) -> list[float]:
    """A field of tokens, summed up over the last sequence of each rollout."""
    keys = [rollout.keys[-1] for rollout in rollouts]
    data = queue.read(keys, partition_id, name)
    return [float(data[name][i].sum()) for i in range(len(keys))]


def exclude(rollouts: Sequence[RolloutRows], partition_id: str) -> None:
    """A group of its own keeps a rollout out of its siblings' mean, a zero mask out of the loss."""
    keys = keys_of(rollouts)
    zeros = queue.read(keys, partition_id, "response_mask")["response_mask"] * 0
    groups = [f"flagged_{rollout.keys[-1]}" for rollout in rollouts for _ in rollout.keys]
    queue.write(keys, partition_id, {"response_mask": zeros, "loss_mask": zeros.clone(), "uid": groups})


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
    data = queue.read(keys, partition_id, "advantages", "returns")
    queue.write(keys, partition_id, {name: data[name] * 0 for name in ("advantages", "returns")})


def write_no_advantages(batch: KVBatchMeta, with_token_rewards: bool) -> None:
    """What verl's advantage step writes, for a batch that updates nothing.

    Args:
        with_token_rewards: rewards by token are theirs, too (`use_kl_in_reward`); here those that were earned.
    """
    earned = queue.read(batch.keys, batch.partition_id, "rm_scores")["rm_scores"]
    fields = {"advantages": earned * 0, "returns": earned * 0}
    if with_token_rewards:
        fields["token_level_rewards"] = earned
    queue.write(batch.keys, batch.partition_id, fields)


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
    masks = queue.read(keys, partition_id, "response_mask")["response_mask"]
    values = [advantage * masks[i].float() for i, advantage in enumerate(advantages)]
    packed = torch.nested.as_nested_tensor(values, layout=torch.jagged)
    queue.write(keys, partition_id, {name: packed.clone() for name in ("advantages", "returns")})


# ----------------------------------------------------------------------------------------------------- dynamic sampling


# verl drops a group whose rollouts all have one value of `algorithm.filter_groups.metric`. A flagged rollout has a
# value, too, though it will not be trained on: beside fifteen siblings of one score, its 0 would make a group look
# unequal that teaches nothing. A rollout's own metric cannot prevent that, since it is computed before the siblings'
# are known; so the comparison itself is overridden, in a subclass. Also dropped are groups with fewer than two valid
# rollouts.


@dataclass
class DroppedRollouts:
    """Rollouts of groups that were dropped since the last step, which no batch has: how many, and how many flagged."""

    count: int = 0
    flagged: int = 0

    def take(self) -> dict[str, float]:
        """As metrics; counts anew."""
        metrics = {"rollout/dropped": float(self.count), "rollout/dropped_flagged": float(self.flagged)}
        self.count = self.flagged = 0
        return metrics


class ValidSiblings(ReplayBuffer):
    """That of synchronous training; stands before verl's buffer of another mode in the list of base classes.

    Args:
        see: is shown the keys of compared rollouts with the breakdown of their rewards; those of dropped groups pass
            nobody else.
        dropped: counts the latter.
    """

    def __init__(
        self, *args: Any, see: Callable[[str, Mapping[str, Any]], None], dropped: DroppedRollouts, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._see, self._dropped = see, dropped

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter]:
        known = set(self._dapo_classification_cache[partition_id])
        filtered: tuple[set[str], Counter] = super()._dapo_filtered_keys(partition_id)
        # Group -> the value that its rollouts share, None where they differ: verl asks once per group, and so do we.
        shared: dict[str, float | None] = self._dapo_classification_cache[partition_id]
        if not (finished := shared.keys() - known):
            return filtered
        shared.update(self._shared_values(partition_id, finished))
        equal = {uid: value for uid, value in shared.items() if value is not None}
        return set(equal), Counter(equal.values())

    def _shared_values(self, partition_id: str, uids: set[str]) -> dict[str, float | None]:
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in uids]
        by_reward = self.filter_groups_metric == FILTER_GROUPS_REWARD_METRIC
        fields = ["extra_fields", *(["rm_scores"] if by_reward else [])]
        data = queue.read(keys, partition_id, *fields)
        values: dict[str, set[float]] = {uid: set() for uid in uids}
        flagged: dict[str, dict[str, bool]] = {uid: {} for uid in uids}  # by rollout, which has a key per sequence
        for i, key in enumerate(keys):
            info = queue.cell(data["extra_fields"], i).get("reward_extra_info", {})
            self._see(key, info)
            uid = key.split("_")[0]
            flagged[uid][key.rsplit("_", 1)[0]] = is_flagged = bool(info.get("flagged"))
            if not is_flagged:
                value = data["rm_scores"][i].sum() if by_reward else info[self.filter_groups_metric]
                values[uid].add(float(value))
        # One value, too, has a lone valid rollout; none has a group without any, whose rollouts scored 0.
        shared = {uid: None if len(found) > 1 else next(iter(found), 0.0) for uid, found in values.items()}
        for uid, value in shared.items():
            if value is not None:
                self._dropped.count += len(flagged[uid])
                self._dropped.flagged += sum(flagged[uid].values())
        return shared


class ValidSiblingsBufferAsync(ValidSiblings, ReplayBufferAsync):
    """Of asynchronous training."""


_KINDS: dict[type, type[ValidSiblings]] = {
    ReplayBuffer: ValidSiblings,
    ReplayBufferAsync: ValidSiblingsBufferAsync,
}


def with_valid_siblings(
    buffer: ReplayBuffer, see: Callable[[str, Mapping[str, Any]], None], dropped: DroppedRollouts
) -> ReplayBuffer:
    """verl's buffer as one that compares valid siblings, shows them, and counts dropped ones.

    Left as it is where groups are not filtered, and where the user has chosen another class
    (`trainer.v1.sampler.custom_sampler`), whose filter is its own.
    """
    kind = _KINDS.get(type(buffer))
    if kind is None or buffer.filter_groups_metric is None:
        return buffer
    # verl keeps each argument under its name.
    return kind(
        see=see, dropped=dropped, **{name: getattr(buffer, name) for name in inspect.signature(type(buffer)).parameters}
    )
