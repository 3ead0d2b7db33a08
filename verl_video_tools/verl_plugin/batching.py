"""A training batch: its rollouts and rows, which of them train, padding, lengths, advantages and dynamic sampling."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.machine import page
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin import queue
from verl_video_tools.verl_plugin.alarms import JudgeWatch
from verl_video_tools.verl_plugin.queue import KVBatchMeta
from verl_video_tools.verl_plugin.settings import TURN_CREDIT, TURN_REWARDS, unpack_record

logger = logging.getLogger(__name__)

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
    (fields,) = queue.read([key], partition_id, *copied)
    zeros = torch.zeros_like(fields["responses"])
    fields |= {"response_mask": zeros, "loss_mask": zeros, "rm_scores": zeros.float()}
    fields |= {"rollout_log_probs": zeros.float()}  # which verl's padding has in every case
    queue.write([batch.keys[row] for row in padding], partition_id, [fields] * len(padding))
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
    (fields,) = queue.read([key], partition_id, *values, "position_ids")
    lengthened = {name: torch.cat([fields[name], fields[name].new_tensor([value])]) for name, value in values.items()}
    positions = fields["position_ids"]
    lengthened["position_ids"] = torch.cat([positions, positions[..., -1:] + 1], dim=-1)
    queue.write([key], partition_id, [lengthened])
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
        trained = [row for row in rows if not is_padding[row]]
        dealt = [*trained, *(row for row in rows if is_padding[row])]
        for number in range(num_mini_batches):
            order += dealt[(number - num_dealt) % num_mini_batches :: num_mini_batches]
        num_dealt += len(trained)
    return order


def equal_groups(uids: Sequence[str], scores: Sequence[float]) -> set[str]:
    """Groups whose rollouts all have one score: there is nothing to compare, and every advantage should be 0.

    verl gives a lone rollout its raw score. In a larger group it subtracts a mean that float32 has rounded and divides
    by a deviation that is nothing but that rounding (1.05 eight times: -0.1 for each).
    """
    scores_by_group: dict[str, set[float]] = {}
    for uid, score in zip(uids, scores, strict=True):
        scores_by_group.setdefault(uid, set()).add(score)
    return {uid for uid, values in scores_by_group.items() if len(values) == 1}


_EPSILON = 1e-6
"""Added to the deviation of a group, as verl does."""


# --------------------------------------------------------------------------------------------- around verl's advantages


def scored(keys: list[str], partition_id: str) -> tuple[list[Trajectory], list[Mapping[str, Any]]]:
    """Records of rollouts, and the breakdown of their rewards.

    Args:
        keys: of the rollouts' last sequences.
    """
    extra_fields = [row["extra_fields"] for row in queue.read(keys, partition_id, "extra_fields")]
    infos = [fields.get("reward_extra_info") or {} for fields in extra_fields]
    return [unpack_record(fields) for fields in extra_fields], infos


def summed(name: str, rollouts: Sequence[RolloutRows], partition_id: str) -> list[float]:
    """A field of tokens, summed up over the last sequence of each rollout."""
    rows = queue.read([rollout.keys[-1] for rollout in rollouts], partition_id, name)
    return [float(row[name].sum()) for row in rows]


def exclude(rollouts: Sequence[RolloutRows], partition_id: str) -> None:
    """A group of its own keeps a rollout out of its siblings' mean, a zero mask out of the loss."""
    keys = keys_of(rollouts)
    zeros = [row["response_mask"] * 0 for row in queue.read(keys, partition_id, "response_mask")]
    groups = [f"flagged_{rollout.keys[-1]}" for rollout in rollouts for _ in rollout.keys]
    excluded = [
        {"response_mask": zero, "loss_mask": zero, "uid": group} for zero, group in zip(zeros, groups, strict=True)
    ]
    queue.write(keys, partition_id, excluded)


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
    rows = queue.read(keys, partition_id, "advantages", "returns")
    queue.write(keys, partition_id, [{name: value * 0 for name, value in row.items()} for row in rows])


def write_no_advantages(batch: KVBatchMeta, with_token_rewards: bool) -> None:
    """What verl's advantage step writes, for a batch that updates nothing.

    Args:
        with_token_rewards: rewards by token are theirs, too (`use_kl_in_reward`); here those that were earned.
    """
    rows = []
    for row in queue.read(batch.keys, batch.partition_id, "rm_scores"):
        zeros = row["rm_scores"] * 0
        rows.append({"advantages": zeros, "returns": zeros})
        if with_token_rewards:
            rows[-1]["token_level_rewards"] = row["rm_scores"]
    queue.write(batch.keys, batch.partition_id, rows)


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
    rows = queue.read(keys, partition_id, "response_mask")
    credits = [advantage * row["response_mask"].float() for advantage, row in zip(advantages, rows, strict=True)]
    queue.write(keys, partition_id, [{"advantages": credit, "returns": credit} for credit in credits])


# ------------------------------------------------------------------------------------------------------ credit per turn


def turn_returns(rewards: Sequence[float], discount: float) -> list[float]:
    """What each turn of a rollout and those after it have earned: sum over s >= t of discount^(s - t) rewards[s]."""
    returns: list[float] = []
    later = 0.0
    for reward in reversed(rewards):
        later = reward + discount * later
        returns.append(later)
    return returns[::-1]


def turn_advantages(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each rollout's `turn_returns`, less the mean of its siblings' at the same turn.

    A sibling that has ended before a turn counts 0 there. The rollout itself is not in the mean, so that the expected
    gradient is that of the returns. A lone rollout has nothing to be compared with: 0.
    """
    num_siblings = len(returns) - 1
    if num_siblings == 0:
        return [[0.0] * len(own) for own in returns]
    num_turns = max(map(len, returns))
    totals = [sum(own[turn] for own in returns if turn < len(own)) for turn in range(num_turns)]
    return [[value - (totals[turn] - value) / num_siblings for turn, value in enumerate(own)] for own in returns]


def credit_turns(rollouts: Sequence[RolloutRows], trajectories: Mapping[str, Trajectory], partition_id: str) -> None:
    """Add the `turn_advantages` of a group to the advantages that its rollouts' tokens have, turn by turn.

    Args:
        rollouts: that count.
        trajectories: their records, by the key of the last sequence.
    """
    paid = {rollout.uid for rollout in rollouts if _pays_turns(trajectories[rollout.keys[-1]])}
    groups: dict[str, list[RolloutRows]] = {}
    for rollout in rollouts:
        if rollout.uid in paid:
            groups.setdefault(rollout.uid, []).append(rollout)
    for group in groups.values():
        keys = keys_of(group)
        fields = ("advantages", "returns", "response_mask", "extra_fields")
        rows = dict(zip(keys, queue.read(keys, partition_id, *fields), strict=True))
        returns = []
        for rollout in group:
            rewards = [math.fsum(turn.rewards.values()) for turn in trajectories[rollout.keys[-1]].turns]
            returns.append(turn_returns(rewards, rows[rollout.keys[-1]]["extra_fields"][TURN_CREDIT]["discount"]))
        credited = []
        for rollout, of_turns in zip(group, turn_advantages(returns), strict=True):
            for key in rollout.keys:
                row, credit = rows[key], torch.zeros_like(rows[key]["advantages"])
                places = row["extra_fields"][TURN_CREDIT]
                for turn, (start, end) in enumerate(places["spans"], start=places["number"]):
                    credit[start:end] = of_turns[turn]
                credit *= row["response_mask"]
                credited.append({name: row[name] + credit for name in ("advantages", "returns")})
        queue.write(keys, partition_id, credited)


def _pays_turns(trajectory: Trajectory) -> bool:
    return any(turn.rewards for turn in trajectory.turns)


# ------------------------------------------------------------------------------------------------- which rollouts train


_GROUP_RELATIVE = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo")
"""Estimators of verl in which a rollout's advantage is its reward less what its siblings have earned."""


class UpdateFilter:
    """Decides which rollouts an update trains on: flagged ones neither train nor move their group's mean.

    Args:
        algorithm: the section of the configuration.
        judge_watch: is shown all rollouts.
    """

    def __init__(self, algorithm: DictConfig, judge_watch: JudgeWatch) -> None:
        self._algorithm, self._judge_watch = algorithm, judge_watch
        self._any_valid = False
        self._valid: list[RolloutRows] = []
        self.skips_update = False
        """The update has nothing to train on. verl would still add KL, momentum and weight decay."""
        self.trajectories: dict[str, Trajectory] = {}
        """Records of the update's rollouts by the key of their last sequence: unpacked once, for the log as well."""

    def begin_step(self) -> None:
        self._any_valid = False
        self._judge_watch.begin_step()

    def rewards_known(
        self, batch: KVBatchMeta, step: int, is_last_update: bool, num_ranks: int, sequences_per_mini_batch: int
    ) -> bool:
        """Take flagged rollouts out of the batch.

        Args:
            is_last_update: of the step.

        Returns:
            Whether verl shall compute advantages; otherwise they are written already.

        Raises:
            UsageError: rollouts of several sequences, or rewards of single turns, with an estimator other than GRPO.
            JudgeError: the judge fails, and the run is to end.
            VideoToolsError: all rollouts of the step failed.
        """
        rollouts = rollouts_of(batch)
        estimator = self._algorithm.adv_estimator
        if estimator != "grpo" and any(len(rollout.keys) > 1 for rollout in rollouts):
            raise UsageError(
                f"algorithm.adv_estimator={estimator} would treat each sequence of a rollout as a rollout of its own, "
                f"as all of verl 0.9.1 but grpo do; set algorithm.adv_estimator=grpo, "
                f"or the context policy append ({page('training')})"
            )
        keys = [rollout.keys[-1] for rollout in rollouts]
        trajectories, reward_infos = scored(keys, batch.partition_id)
        if estimator != "grpo" and any(map(_pays_turns, trajectories)):
            raise UsageError(
                f"algorithm.adv_estimator={estimator} with a method that pays single turns: what they earn is added to "
                f"the advantages of grpo. Set that ({page('training')})"
            )
        self.trajectories = dict(zip(keys, trajectories, strict=True))
        for key, info in zip(keys, reward_infos, strict=True):
            self._judge_watch.see(key, info)
        self._judge_watch.check_failures(step)
        if is_last_update:
            self._judge_watch.end_step(step)
        valid = [not trajectory.flags for trajectory in trajectories]
        self._any_valid |= any(valid)
        if not any(valid):
            is_unjudged = any(JUDGE_FLAG in trajectory.flags for trajectory in trajectories)
            if is_last_update and not is_unjudged and not self._any_valid:
                (error, count), *_ = Counter(str(trajectory.error) for trajectory in trajectories).most_common()
                raise VideoToolsError(
                    f"step {step}: all {len(rollouts)} rollouts failed, nothing is left to train on. "
                    f"Most common reason ({count} times): {error}"
                )
            # A judge may come back, and other updates of the step may have rollouts: those that fail are the first to
            # finish. Masks stay as they are: verl's metrics are no numbers without a token, and its correction of
            # log-probabilities, which comes with its advantages, raises.
            what = "be judged" if is_unjudged else "be trained on"
            logger.warning("step %s: no rollout could %s; the policy stays as it is", step, what)
            write_no_advantages(batch, self._algorithm.use_kl_in_reward)
            self.skips_update = True
            return False
        self._valid = [rollout for rollout, is_valid in zip(rollouts, valid, strict=True) if is_valid]
        if flagged := [rollout for rollout, is_valid in zip(rollouts, valid, strict=True) if not is_valid]:
            exclude(flagged, batch.partition_id)
            if not deal_masked(batch, frozenset(keys_of(flagged)), num_ranks, sequences_per_mini_batch):
                few = "step %s: %d valid rollouts do not fill a mini-batch each; the policy stays as it is"
                logger.warning(few, step, len(self._valid))
                self.skips_update = True
        return True

    def advantages_known(self, batch: KVBatchMeta) -> None:
        """Correct those of verl where its comparison of siblings does not hold, and credit single turns."""
        if self._algorithm.adv_estimator in _GROUP_RELATIVE:
            correct_by_group(self._valid, self._algorithm, batch.partition_id)
            credit_turns(self._valid, self.trajectories, batch.partition_id)


# ----------------------------------------------------------------------------------------------------- dynamic sampling


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


def shared_values(
    keys: Sequence[str],
    partition_id: str,
    metric: str | None,
    see: Callable[[str, Mapping[str, Any]], None],
    dropped: DroppedRollouts,
) -> dict[str, float | None]:
    """The value that all valid rollouts of a group have, by group; None where they differ, or where their turns have
    earned different rewards.

    verl drops groups whose rollouts all have one value. A flagged rollout has a value, too, though it will not be
    trained on: beside fifteen siblings of one score, its 0 would make a group look unequal that teaches nothing. A
    group with fewer than two valid rollouts teaches nothing either.

    Args:
        keys: of all sequences of whole groups.
        metric: an entry of `reward_extra_info`; None: the reward.
        see: is shown the last key of each rollout with the breakdown of its reward, since those of dropped groups reach
            nobody else.
        dropped: counts the rollouts of groups that share a value.
    """
    rollouts = group_rollouts(keys)
    fields = ["extra_fields"] if metric else ["extra_fields", "rm_scores"]
    rows = queue.read([rollout.keys[-1] for rollout in rollouts], partition_id, *fields)
    values: dict[str, set[float]] = {}
    turn_values: dict[str, set[tuple[tuple[int, float], ...]]] = {}
    flagged: dict[str, list[bool]] = {}
    for rollout, row in zip(rollouts, rows, strict=True):
        info = row["extra_fields"].get("reward_extra_info", {})
        see(rollout.keys[-1], info)
        group_values = values.setdefault(rollout.uid, set())
        is_flagged = bool(info.get("flagged"))
        flagged.setdefault(rollout.uid, []).append(is_flagged)
        if not is_flagged:
            group_values.add(float(info[metric] if metric else row["rm_scores"].sum()))
            sums = [math.fsum(rewards.values()) for rewards in row["extra_fields"].get(TURN_REWARDS) or ()]
            paid = tuple((turn, value) for turn, value in enumerate(sums) if value)
            turn_values.setdefault(rollout.uid, set()).add(paid)
    shared: dict[str, float | None] = {}
    for uid, group_values in values.items():
        # A lone valid rollout has one value; a group without any has none, and its rollouts scored 0.
        differ = len(group_values) > 1 or len(turn_values.get(uid, ())) > 1
        shared[uid] = None if differ else next(iter(group_values), 0.0)
        if shared[uid] is not None:
            dropped.count += len(flagged[uid])
            dropped.flagged += sum(flagged[uid])
    return shared
