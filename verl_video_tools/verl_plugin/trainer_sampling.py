"""Dynamic sampling on the rollouts that count: verl's replay buffers, which compare the valid siblings of a group only.

verl drops a group whose rollouts all have one value of `algorithm.filter_groups.metric`. A flagged rollout has a value,
too, though it will not be trained on: beside fifteen siblings of one score, its 0 would make a group look unequal that
teaches nothing. A rollout's own metric cannot prevent that, since it is computed before the siblings' are known; so the
comparison itself is overridden, in a subclass. Also dropped are groups with fewer than two valid rollouts.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer, ReplayBufferAsync

from verl_video_tools.verl_plugin.trainer_records import batch_row


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
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=fields)
        values: dict[str, set[float]] = {uid: set() for uid in uids}
        flagged: dict[str, dict[str, bool]] = {uid: {} for uid in uids}  # by rollout, which has a key per sequence
        for i, key in enumerate(keys):
            info = batch_row(data["extra_fields"], i).get("reward_extra_info", {})
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
