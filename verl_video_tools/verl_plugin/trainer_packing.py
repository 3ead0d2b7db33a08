"""Rows of a training batch as TransferQueue packs them and verl's update reads them: padding and lengths."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_video_tools.verl_plugin.trainer_records import batch_row
from verl_video_tools.verl_plugin.trainer_rows import RolloutRows, group_rollouts, spread_padding


def is_padding(tag: Mapping[str, Any]) -> bool:
    return bool(tag.get("is_padding", False))


def rollouts_of(batch: KVBatchMeta) -> list[RolloutRows]:
    """The rollouts of a batch, without verl's padding."""
    return group_rollouts([key for key, tag in zip(batch.keys, batch.tags, strict=True) if not is_padding(tag)])


def keys_of(rollouts: Sequence[RolloutRows]) -> list[str]:
    return [key for rollout in rollouts for key in rollout.keys]


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
    data = tq.kv_batch_get(keys=[key], partition_id=partition_id, select_fields=copied)
    fields = {name: batch_row(data[name], 0) for name in copied}
    zeros = torch.zeros_like(fields["responses"])
    fields |= {"response_mask": zeros, "loss_mask": zeros, "rm_scores": zeros.float()}
    fields |= {"rollout_log_probs": zeros.float()}  # which verl's padding has in every case
    tq.kv_batch_put(
        keys=[batch.keys[row] for row in padding],
        partition_id=partition_id,
        fields=list_of_dict_to_tensordict([fields] * len(padding)),
    )
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
    data = tq.kv_batch_get(keys=[key], partition_id=partition_id, select_fields=[*values, "position_ids"])
    fields = {name: torch.cat([data[name][0], data[name][0].new_tensor([value])]) for name, value in values.items()}
    positions = data["position_ids"][0]
    fields["position_ids"] = torch.cat([positions, positions[..., -1:] + 1], dim=-1)
    batch_of_one = TensorDict({name: value.unsqueeze(0) for name, value in fields.items()}, batch_size=1)
    tq.kv_batch_put(keys=[key], partition_id=partition_id, fields=batch_of_one)
    tag = batch.tags[row]
    tag["seq_len"], tag["response_len"] = tag["seq_len"] + 1, tag["response_len"] + 1
