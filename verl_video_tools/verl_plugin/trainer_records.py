"""Lines of records from TransferQueue, while it holds a batch's data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin.settings import CACHED_TOKENS, SAMPLED_TOKENS, TOKEN_COUNTS, unpack_record
from verl_video_tools.verl_plugin.trainer_rows import RolloutRows

_ROW_FIELDS = ("extra_fields", "data_source", "reward_model", "extra_info")


class ReplayTap:
    """verl's replay buffer, with a look at its answers. All else is the buffer's.

    Args:
        see_validation: is shown each batch of validation: `_validate` clears them within its own loop, and only the
            buffer's answer passes through the trainer's hands before.
        see_failures: is told of how many groups of a batch rollouts have failed. In synchronous training verl goes on
            with those that are left.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        see_validation: Callable[[KVBatchMeta], None],
        see_failures: Callable[[int], None],
    ) -> None:
        self._buffer, self._see_validation, self._see_failures = buffer, see_validation, see_failures

    def sample(self, *args: Any, partition_id: str, **kwargs: Any) -> Any:
        result = self._buffer.sample(*args, partition_id=partition_id, **kwargs)
        if failed := self._buffer.failure_keys[partition_id]:
            self._see_failures(len(failed))
        if partition_id == "val":
            self._see_validation(result[0])
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)


def record_lines(
    rollouts: Sequence[RolloutRows],
    partition_id: str,
    step: int,
    *,
    trained: bool,
    with_tokens: bool,
    with_log_probs: bool,
    trajectories: Mapping[str, Trajectory] | None = None,
) -> list[dict[str, Any]]:
    """One line per rollout: what is the rollout's from its last row, counts of tokens summed over its sequences.

    `line["trajectory"]` is a `Trajectory`, as in the lines that `records.records.read_records` gives.

    Args:
        trained: the batch has advantages; else those of the lines are None.
        with_tokens: keep the training sequences too.
        with_log_probs: the rows hold the engine's log-probabilities (`rollout.calculate_log_probs`).
        trajectories: records that have been unpacked already, by the key of a rollout's last row.
    """
    token_fields = ["prompts", "response_mask", *(["advantages"] if trained else [])]
    if with_tokens:
        token_fields += ["responses", *(["old_log_probs"] if trained else [])]
        token_fields += ["rollout_log_probs"] if with_log_probs else []
    keys = [key for rollout in rollouts for key in rollout.keys]
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=[*token_fields, *_ROW_FIELDS])
    lines, first = [], 0
    for rollout in rollouts:
        rows = range(first, first + len(rollout.keys))
        first, last = rows.stop, rows[-1]
        extra_fields = batch_row(data["extra_fields"], last)
        trajectory = (trajectories or {}).get(rollout.keys[-1]) or unpack_record(extra_fields)
        counts = [batch_row(data["extra_fields"], i) for i in rows]
        if trained:
            masks = [data["response_mask"][i] for i in rows]
            advantages = [data["advantages"][i][mask.bool()] for i, mask in zip(rows, masks, strict=True) if mask.any()]
            first_advantage = float(advantages[-1][0]) if advantages else 0.0
        line: dict[str, Any] = {
            "step": step,
            "uid": rollout.uid,
            "session_id": rollout.session_id,
            "agent_name": trajectory.method,
            "data_source": batch_row(data["data_source"], last),
            "ground_truth": _ground_truth(batch_row(data["reward_model"], last)),
            "extra_info": _plain(batch_row(data["extra_info"], last)),
            "policy_version": [extra_fields.get("min_global_steps"), extra_fields.get("max_global_steps")],
            "reward": _plain(extra_fields["reward_extra_info"]),
            "advantage": first_advantage if trained else None,
            "num_sequences": len(rows),
            "num_prompt_tokens": sum(len(data["prompts"][i]) for i in rows),
            **{name: sum(count[name] for count in counts) for name in TOKEN_COUNTS},
            **{name: extra_fields.get(name) for name in (CACHED_TOKENS, SAMPLED_TOKENS)},
            "trajectory": trajectory,
        }
        if with_tokens:
            line["sequences"] = [{name: data[name][i].tolist() for name in token_fields} for i in rows]
        lines.append(line)
    return lines


def batch_row(column: Any, index: int) -> Any:
    value = column[index]
    return getattr(value, "data", value) if not isinstance(value, torch.Tensor) else value


def _ground_truth(reward_model: Any) -> Any:
    """None for a row without one, whose rollouts the loop has flagged."""
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def _plain(value: Any) -> Any:
    """numpy's and torch's values as Python's, recursively."""
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
