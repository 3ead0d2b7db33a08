"""Rows of a training batch and the rollouts they belong to. Pure functions over TransferQueue's keys.

A key is `{uid}_{session_id}_{index}`: group, rollout in the group, sequence in the rollout (one, or one per turn).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
