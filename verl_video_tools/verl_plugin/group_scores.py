"""Rewards that compare the rollouts of a group, inside the agent loop worker that runs the group.

verl's worker scores each rollout by itself, writes its rows to TransferQueue, and puts the tag `finished` on the group
once its last rollout has settled; whoever reads rewards waits for that tag. So the last rollout to settle compares all
of them (`Method.score_group`) and writes rewards and records again before it ends: filtering, metrics, records and
advantages see one value. Nothing happens for methods without `group_components`, nor in validation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import transfer_queue as tq
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_video_tools.core.errors import GroupScoreError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.trajectory import GROUP_SCORE_FLAG
from verl_video_tools.core.types import Method, Sample, Trajectory
from verl_video_tools.methods.breakdown import group_rewards
from verl_video_tools.verl_plugin.settings import pack_record, unpack_record

logger = logging.getLogger(__name__)


@dataclass
class StoredRollout:
    """One scored rollout, as its rows are in the queue."""

    keys: list[str]
    """Of its sequences, in order of turns; the record is with the last."""
    outputs: list[AgentLoopOutput]
    """Its sequences, without tokens and images."""

    @property
    def info(self) -> dict[str, Any]:
        return dict(self.outputs[-1].extra_fields["reward_extra_info"])

    def rewrite(self, info: Mapping[str, Any], trajectory: Trajectory | None = None) -> None:
        """Give every sequence the reward, and the last one the record where it has changed."""
        for output in self.outputs:
            output.reward_score = float(info["score"])
            output.extra_fields = {**output.extra_fields, "reward_extra_info": dict(info)}
        if trajectory is not None:
            self.outputs[-1].extra_fields |= pack_record(trajectory)

    def rows(self) -> list[dict[str, Any]]:
        """What changes of its rows, in the form in which verl stores it."""
        stored = [output.as_dict() for output in self.outputs]
        return [{name: row[name] for name in ("rm_scores", "extra_fields")} for row in stored]


@dataclass
class RolloutGroup:
    """The rollouts of one question while they run; `compare` is called once, when the last of them has settled."""

    num_running: int = 0
    method: Method | None = None
    """The run's, where it compares the rollouts of a group."""
    sample: Sample | None = None
    rollouts: dict[int, StoredRollout] = field(default_factory=dict)
    """By the number of the rollout in the group. One whose loop, scoring or storing failed is missing."""
    validates: bool | None = None
    """Whether it is one of validation; None where nobody has said so."""

    def check_scored(self, output: AgentLoopOutput) -> None:
        """Called before verl stores a rollout's rows, which it would train on even if the group has failed.

        Args:
            output: the rollout's last sequence.

        Raises:
            UsageError: verl has not scored it yet, or another reward manager than ours has.
        """
        if self.method is None:
            return
        if output.reward_score is None:
            raise UsageError(
                f"{self.method.name} compares the rollouts of a group, and verl scores them only after the group has "
                "finished; set reward.reward_model.enable_resource_pool=True, or no reward.reward_model at all"
            )
        info = output.extra_fields.get("reward_extra_info") or {}
        if missing := sorted({"score", "acc", "flagged", *self.method.reward_components} - set(info)):
            raise UsageError(
                f"{self.method.name} compares the rollouts of a group by the rewards of VideoToolsRewardManager, and "
                f"these lack {', '.join(missing)}; select it with reward.reward_manager ({page('groups')})"
            )

    def add(self, outputs: Sequence[AgentLoopOutput], uid: str, session_id: int) -> None:
        """Take in a rollout that verl has scored and stored."""
        if self.method is None:
            return
        keys = [f"{uid}_{session_id}_{index}" for index in range(len(outputs))]
        self.rollouts[session_id] = StoredRollout(keys, [_without_tokens(output) for output in outputs])

    def settle(self) -> bool:
        """Count a rollout that has ended, in whatever way; whether it was the last one."""
        self.num_running -= 1
        return self.num_running == 0

    def compare(self) -> list[StoredRollout]:
        """The rollouts whose rewards are others now. Flagged and lost ones are left out, and keep theirs: nothing."""
        if self.method is None or self.sample is None:
            return []
        compared: list[StoredRollout] = []
        trajectories: list[Trajectory] = []
        for _, rollout in sorted(self.rollouts.items()):
            trajectory = unpack_record(rollout.outputs[-1].extra_fields)
            if not rollout.info["flagged"] and not trajectory.is_lost():
                compared.append(rollout)
                trajectories.append(trajectory)
        if len(compared) < 2:
            return []
        names = ("score", "acc", *self.method.reward_components)
        rewards = [{name: rollout.info[name] for name in names} for rollout in compared]
        try:
            found = group_rewards(self.method, trajectories, rewards, self.sample)
        except GroupScoreError as error:
            logger.exception("group of row %s: %s", self.sample.extra_info.get("index"), error)
            zero = {**zero_reward(self.method), "acc": 0.0, "flagged": 1.0}
            for rollout, trajectory in zip(compared, trajectories, strict=True):
                trajectory.flags.append(GROUP_SCORE_FLAG)
                trajectory.error = str(error)
                rollout.rewrite(rollout.info | zero, trajectory)
            return compared
        for rollout, reward in zip(compared, found, strict=True):
            rollout.rewrite(rollout.info | reward)
        return compared


_group: ContextVar[RolloutGroup | None] = ContextVar("rollout_group", default=None)


def begin_group(validates: bool | None = None) -> RolloutGroup:
    """For the running asyncio task and all that it starts: verl runs each question in one, and its rollouts in
    others that this one starts."""
    group = RolloutGroup(validates=validates)
    _group.set(group)
    return group


def running_group() -> RolloutGroup | None:
    """That of the running rollout; None where another worker than ours runs it."""
    return _group.get()


def to_be_compared(method: Method, sample: Sample) -> None:
    """Called by the agent loop of each training rollout, so that only rollouts of ours are compared.

    Args:
        method: the run's.

    Raises:
        UsageError: the method compares rollouts, and nobody would: its rewards would silently lack a part.
    """
    if not method.group_components:
        return
    if (group := running_group()) is None:
        raise UsageError(
            f"{method.name} compares the rollouts of a group, and the agent loop worker of this run does not: train "
            "with trainer_mode=video_tools, and derive a rollout.agent.agent_loop_manager_class of your own from "
            f"VideoAgentLoopManager ({page('groups')})"
        )
    group.method, group.sample = method, sample


async def write_rewards(rollouts: Sequence[StoredRollout]) -> None:
    """Write rewards and records of a training group over those in the queue, in one request."""
    if not rollouts:
        return
    await tq.async_kv_batch_put(
        keys=[key for rollout in rollouts for key in rollout.keys],
        fields=list_of_dict_to_tensordict([row for rollout in rollouts for row in rollout.rows()]),
        partition_id="train",
    )


async def remove_rows(rollouts: Iterable[StoredRollout]) -> None:
    """Take a training group's rows out of the queue: verl trains on what a failed group has there."""
    await tq.async_kv_clear(keys=[key for rollout in rollouts for key in rollout.keys], partition_id="train")


def _without_tokens(output: AgentLoopOutput) -> AgentLoopOutput:
    """Only as long as the response: that is how long verl's `rm_scores` are."""
    return AgentLoopOutput(
        prompt_ids=[],
        response_ids=[],
        response_mask=output.response_mask,
        reward_score=output.reward_score,
        metrics=AgentLoopMetrics(),
        extra_fields=output.extra_fields,
    )
