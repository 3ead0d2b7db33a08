"""Properties of what a method does with a group: all rollouts of one question in one step."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Rollout, Subject
from verl_video_tools.core.errors import CallError, CallErrorCode, GroupScoreError
from verl_video_tools.core.group_rewards import group_rewards
from verl_video_tools.core.types import CallRecord, Trajectory
from verl_video_tools.rollout.session_sampling import session_sampling

_SIZES = (1, 2, 8)
_TINY = 1e-6
_Rewards = Sequence[Mapping[str, float]]


@holds("groups", requires=("rollouts_of_a_group_are_repeatable",))
def groups_of_any_size_are_sampled(subject: Subject) -> None:
    """`for_session` and `sampling_options` answer for a group of one, because a run may make one rollout of a row."""
    for size in _SIZES:
        for number in range(size):
            try:
                subject.method.for_session(number, size, False)
                session_sampling(subject.method, number, size, False, {"temperature": 1.0})
            except Exception as error:
                told = f"rollout {number} of a group of {size} raises"
                raise fail(told, error, "give options in range for each size of a group") from error


@holds("groups", requires=("reward_is_finite", "acc_tells_right_from_wrong"))
def group_rewards_are_given(subject: Subject) -> None:
    """`score_group` gives each rollout a finite number for each component, because else the group is flagged."""
    everything = _siblings(subject)
    for group in (everything, everything[:2], everything[:1] * 2):
        try:
            _compared(subject, [rollout.trajectory for rollout in group], _rewards(subject, group))
        except GroupScoreError as error:
            raise fail(f"a group of {len(group)} rollouts", error, "give one dictionary of numbers for each") from error


@holds("groups", requires=("group_rewards_are_given",))
def group_rewards_follow_the_rollout(subject: Subject) -> None:
    """A rollout earns the same in each order of its group, because its number says nothing of what it did."""
    group = _siblings(subject)
    trajectories, rewards = [rollout.trajectory for rollout in group], _rewards(subject, group)
    earned = _compared(subject, trajectories, rewards)
    for order in (list(range(len(group)))[::-1], [*range(1, len(group)), 0]):
        again = _compared(subject, [trajectories[i] for i in order], [rewards[i] for i in order])
        for place, number in enumerate(order):
            if not _same(again[place], earned[number]):
                told = f"a rollout of the kind {group[number].kind!r} earns {dict(earned[number])}, in another order"
                raise fail(told, again[place], "return the results in order of `trajectories`")


@holds("groups", requires=("group_rewards_are_given", "unexecuted_calls_earn_nothing"))
def refused_calls_earn_nothing_in_a_group(subject: Subject) -> None:
    """A refused call adds nothing beside siblings either, because nothing was done and nothing was seen."""
    subject.call_turn()
    group = [rollout for rollout in _siblings(subject) if not rollout.trajectory.calls()]
    # Siblings that only talk, right or wrong: few users of tools, which a term may pay to become more.
    group = [rollout for rollout in group for _ in range(4)]
    if not group:
        raise NotApplicable("no rollout is without a call")
    trajectories, rewards = [rollout.trajectory for rollout in group], _rewards(subject, group)
    earned = _compared(subject, trajectories, rewards)
    for number, rollout in enumerate(group):
        twins = [*trajectories[:number], _with_refused_calls(subject, rollout.trajectory), *trajectories[number + 1 :]]
        other = _compared(subject, twins, rewards)[number]
        if more := sorted(name for name in other if other[name] > earned[number][name] + _TINY):
            told = f"{', '.join(more)} of a rollout of the kind {rollout.kind!r} with a refused call of each tool"
            raise fail(told, other, "compare by trajectory.executed_calls()")


def _siblings(subject: Subject) -> list[Rollout]:
    """Rollouts on one question, as a group holds them; at least two.

    Raises:
        NotApplicable: the method compares none.
    """
    if not subject.method.group_components:
        raise NotApplicable("the method compares no rollouts")
    group = [each for each in subject.rollouts if each.sample is subject.sample and not each.trajectory.is_lost()]
    if len(group) < 2:
        raise NotApplicable("fewer than two rollouts on one question were found")
    return group


def _rewards(subject: Subject, group: Sequence[Rollout]) -> list[dict[str, float]]:
    """Of each rollout by itself, with `acc`, as the loop hands them on."""
    alone = [dict(subject.reward(rollout)) for rollout in group]
    return [{"acc": subject.method.acc(reward, subject.sample), **reward} for reward in alone]


def _compared(subject: Subject, trajectories: Sequence[Trajectory], rewards: _Rewards) -> list[dict[str, float]]:
    """What each rollout earns by comparison; on copies, since a method may change what it is given."""
    scored = group_rewards(subject.method, copy.deepcopy(trajectories), copy.deepcopy(rewards), subject.sample)
    return [{name: reward[name] for name in subject.method.group_components} for reward in scored]


def _same(some: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(abs(some[name] - other[name]) <= _TINY for name in some)


def _with_refused_calls(subject: Subject, trajectory: Trajectory) -> Trajectory:
    twin = copy.deepcopy(trajectory)
    error = CallError(CallErrorCode.TURN_LIMIT, "the same turn already answers")
    refused = [
        CallRecord(name, dict(records[0].arguments), ok=False, error=error)
        for name, records in subject.calls.records.items()
    ]
    if twin.turns:
        twin.turns[-1].calls = refused
    return twin
