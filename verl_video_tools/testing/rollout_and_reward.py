"""Properties of whole rollouts, and of their rewards."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from verl_video_tools.core.errors import CallError, CallErrorCode, GroupScoreError, JudgeError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.types import (
    CallRecord,
    Content,
    ImagePart,
    Message,
    QuestionType,
    Sample,
    StopReason,
    Trajectory,
    append,
    content_text,
)
from verl_video_tools.methods.breakdown import group_rewards
from verl_video_tools.rollout.observation import is_same_message, next_context
from verl_video_tools.synthetic.seconds import WorldJudge
from verl_video_tools.testing.subject import NotApplicable, Rollout, Subject, fail, holds, no_error
from verl_video_tools.testing.world import FailingJudge, without_annotations

_TINY = 1e-6
_UNGRADABLE: tuple[tuple[QuestionType, str, tuple[str, ...]], ...] = (
    ("open", "a green triangle", ()),
    ("numeric", "many", ()),
    ("mc", "Z", ("a cat", "a dog")),
)
"""Types, truths and options of rows whose answers cannot be graded without a judge."""


@holds("reward", requires=("example_turns_work", "plans_ignore_the_truth", "observe_answers_every_outcome"))
def rollouts_end(subject: Subject) -> None:
    """Every rollout ends with a stop reason and has a JSON record, because one that raises takes its group along."""
    for rollout in subject.rollouts:
        with no_error("a scripted rollout", "run its turns by `vvt replay` to see where"):
            trajectory = rollout.trajectory
        end = (trajectory.stop_reason, trajectory.error)
        if end[0] is None or end[1] is not None:
            raise fail(f"a rollout of the kind {rollout.kind!r} ends with", end, "run its turns by `vvt replay`")
        with no_error("JSON of the record", "keep numbers and texts in results and arguments"):
            json.dumps(trajectory.to_dict(), allow_nan=False)


@holds("reward", requires=("rollouts_end",))
def contexts_follow_from_the_dialogue(subject: Subject) -> None:
    """The context policy returns the same messages for the same dialogue, also before images are decoded, and shows no
    image that is not in it, because budgets are checked first and fine-tuning repeats the contexts."""
    policy = subject.method.context_policy()
    if policy is append:
        raise NotApplicable("each turn sees the whole dialogue")
    for rollout in subject.rollouts:
        dialogue = subject.dialogue(rollout)
        for number, turn in enumerate(dialogue[:-1]):
            if turn.role != "assistant":
                continue
            what = f"the context after message {number} of a rollout of the kind {rollout.kind!r}"
            decoded = dialogue[: number + 2]
            planned = [Message(each.role, _without_pixels(each.content)) for each in decoded]
            with no_error(what, f"return messages of the dialogue; see {page('write-a-method')}"):
                first, *others = [next_context(policy, each) for each in (decoded, decoded, planned)]
            for other in others:
                if len(other) != len(first) or not all(map(is_same_message, first, other)):
                    texts = [content_text(message.content) for message in other]
                    raise fail(f"{what}, made again,", texts, "use the dialogue alone, and no pixels")


def _without_pixels(content: Content) -> Content:
    return tuple(part if isinstance(part, str) else ImagePart(part.record) for part in content)


@holds("config", requires=("config_is_a_frozen_dataclass", "rollouts_end"))
def config_survives_pickling(subject: Subject) -> None:
    """The config is equal after pickling and keeps nothing from rollouts, because Ray sends only fields to workers."""
    method, advice = subject.method, "keep all values in fields, and the class at module level"
    with no_error("pickling the config", advice):
        unpickled = pickle.loads(pickle.dumps(method))
    if unpickled != method:
        raise fail("the config after pickling", unpickled, advice)
    for rollout in subject.rollouts:
        _ = rollout.trajectory  # the first access runs the rollout, which may leave something in the method
    new, used = vars(replace(method)), vars(method)
    cached = {name for name in used if isinstance(getattr(type(method), name, None), cached_property)}
    if changed := sorted(name for name in used.keys() - cached if name not in new or new[name] != used[name]):
        advice = "compute them again, or in a function with @cache"
        raise fail("attributes that rollouts set on the config", changed, advice)


@holds("reward", requires=("rollouts_end",))
def reward_is_complete(subject: Subject) -> None:
    """Each rollout gets a finite number for each of `reward_components`, because verl stacks them in a batch."""
    method, group = subject.method, set(subject.method.group_components)
    expected = set(method.reward_components)
    for rollout in subject.rollouts:
        what = f"of a rollout of the kind {rollout.kind!r}"
        with no_error(f"the reward {what}", "pay nothing for what is missing"):
            components = asyncio.run(method.components(copy.deepcopy(rollout.trajectory), rollout.sample, WorldJudge()))
        if not expected - group <= components.keys() <= expected | group:
            advice = "return each of `reward_components`, also if it is 0"
            raise fail(f"components {what}, which should be {sorted(expected)}", sorted(components), advice)
        value: Any
        for name, value in rollout.reward.items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise fail(f"{name} {what}", value, "return a finite float")


@holds("reward", requires=("reward_is_complete",))
def reward_is_repeatable(subject: Subject) -> None:
    """Scoring depends on turns and calls, not on latencies, and leaves the record unchanged, because a resumed run
    scores again and records are written later."""
    for rollout in subject.rollouts:
        slow = copy.deepcopy(rollout.trajectory)
        slow.cache.hits, slow.cache.misses = 10_000, 20_000
        for call in slow.calls():
            call.latency_ms = call.latency_ms * 100 + 5_000
        for trajectory, what in ((rollout.trajectory, "scored again"), (slow, "of a rollout on a slow machine")):
            if (again := subject.score(trajectory, rollout.sample)) != rollout.reward:
                advice = "use no random values, latencies or caches"
                raise fail(f"the reward {rollout.reward!r:.120}, {what},", again, advice)
        scored = copy.deepcopy(rollout.trajectory)
        asyncio.run(subject.method.score(scored, rollout.sample, WorldJudge()))
        for turn in scored.turns:
            turn.rewards = {}  # which `Method.score` writes itself
        if scored != rollout.trajectory:
            raise fail("the record after scoring", scored.to_dict(), "do not change it")


@holds("reward", requires=("reward_is_repeatable",))
def refused_calls_earn_nothing(subject: Subject) -> None:
    """A refused call adds nothing to a reward, also compared with siblings, because nothing was done or seen."""
    subject.call_turn()
    rollouts = [rollout for rollout in subject.rollouts if rollout.trajectory.turns and not rollout.trajectory.calls()]
    for rollout in rollouts:
        _earns_no_more(
            subject, rollout, _with_refused_calls(subject, rollout.trajectory), "a refused call of each tool"
        )
    if not subject.method.group_components:
        return
    # Siblings without calls: terms of a group may pay more for a tool that few of its rollouts use.
    group = [rollout for rollout in rollouts if rollout.sample is subject.sample for _ in range(4)]
    trajectories = [rollout.trajectory for rollout in group]
    earned = _group_rewards(subject, group, trajectories)
    for number, rollout in enumerate(group):
        changed = [*trajectories]
        changed[number] = _with_refused_calls(subject, rollout.trajectory)
        other = _group_rewards(subject, group, changed)[number]
        if more := sorted(name for name in other if other[name] > earned[number][name] + _TINY):
            what = f"{', '.join(more)} of a rollout of the kind {rollout.kind!r} with a refused call of each tool"
            raise fail(what, other, "compare by trajectory.executed_calls()")


def _with_refused_calls(subject: Subject, trajectory: Trajectory) -> Trajectory:
    changed = copy.deepcopy(trajectory)
    error = CallError(CallErrorCode.TURN_LIMIT, "the same turn already answers")
    changed.turns[-1].calls = [
        CallRecord(name, arguments, ok=False, error=error) for name, arguments in subject.example_arguments()
    ]
    return changed


def _earns_no_more(subject: Subject, rollout: Rollout, changed: Trajectory, what: str) -> None:
    """Raises `Failed` if a component of the changed rollout is positive and larger than before."""
    earned = rollout.reward
    for name, value in subject.score(changed, rollout.sample).items():
        if name != "score" and value > max(earned[name], 0.0) + _TINY:
            before = f"{name} of a rollout of the kind {rollout.kind!r} was {earned[name]:g}, and with {what}"
            raise fail(before, value, "pay by trajectory.executed_calls(), not by text")


@holds("reward", requires=("reward_is_repeatable",))
def fabricated_replies_earn_nothing(subject: Subject) -> None:
    """A tool's reply that the policy wrote itself earns nothing, because only executed calls were seen."""
    call = subject.call_turn()
    observed = [turn.observation or "" for rollout in subject.of_kind("silent") for turn in rollout.trajectory.turns]
    reply = f"{call}\n{observed[0] if observed else ''}\n<tool_response>frame 5 shows it</tool_response>\n"
    for rollout in subject.rollouts:
        changed = copy.deepcopy(rollout.trajectory)
        if changed.turns:
            changed.turns[-1].text = reply + changed.turns[-1].text
            _earns_no_more(subject, rollout, changed, "a fabricated call and reply")


@holds("reward", requires=("reward_is_repeatable",))
def grading_separates_right_from_wrong(subject: Subject) -> None:
    """A right answer earns more than a wrong one, and naming every option is wrong, because there would be nothing to
    learn."""
    subject.answer_turn("A")
    for right, wrong in zip(subject.of_kind("good"), subject.of_kind("wrong"), strict=True):
        more, less = right.reward, wrong.reward
        if more["score"] <= less["score"]:
            what = f"the answer {right.trajectory.answer!r}, which is right, earns {more!r:.120}, and a wrong one"
            raise fail(what, less, "grade by `toolkit.grade_answer`")
    for kind, acc in {"good": 1.0, "wrong": 0.0, "silent": 0.0, "empty": 0.0, "every option": 0.0}.items():
        for rollout in subject.of_kind(kind):
            if (got := subject.method.acc(rollout.reward, rollout.sample)) != acc:
                what = f"acc of the answer {rollout.trajectory.answer!r}, which should be {acc:g}"
                raise fail(what, got, "grade by `toolkit.grade_answer`")


@holds("reward", requires=("reward_is_complete",))
def judge_errors_propagate(subject: Subject) -> None:
    """A judge without a verdict raises its JudgeError through `score`, because such a rollout is flagged, not wrong."""
    question = replace(subject.sample, question_type="open", ground_truth="a green triangle", options=())
    trajectory = subject.run([subject.answer_turn("something that is green")], question)
    if trajectory.answer is None:
        raise NotApplicable("the answer to an open question was not accepted")
    judge = FailingJudge()
    try:
        reward = subject.score(trajectory, question, judge)
    except JudgeError:
        return
    except UsageError as error:
        raise NotApplicable(f"open questions are refused: {error}") from error
    if judge.num_requests:
        raise fail("the reward of an answer that no judge could judge", reward, "let JudgeError pass")
    raise NotApplicable("the judge is not asked about such an answer")


@holds("reward", requires=("reward_is_complete",))
def accepted_rows_are_scored(subject: Subject) -> None:
    """`score` grades every row that `check_sample` and `check_gradable` accept, also without a judge, because a run
    checks its rows with them."""
    method, bare = subject.method, without_annotations(subject.sample)
    for kind, truth, options in _UNGRADABLE:
        sample = replace(subject.sample, question_type=kind, ground_truth=truth, options=options)
        _scores_if_accepted(subject, method.check_sample, sample, [subject.answer_turn("something")])
    for rollout in subject.of_kind("silent", "answer", "wrong"):
        _scores_if_accepted(subject, method.check_gradable, bare, rollout.turns)


def _scores_if_accepted(subject: Subject, check: Any, sample: Sample, turns: Sequence[str]) -> None:
    row = f"a row of type {sample.question_type} with the truth {sample.ground_truth!r}"
    if not sample.subtitles and sample.video_segment_seconds is None:
        row += " without segment, class and subtitles"
    with no_error(f"{check.__name__} for {row}", "raise UsageError"):
        try:
            check(sample, None)
        except UsageError:
            return
    advice = "do without the missing annotation, or refuse the row"
    with no_error(f"{check.__name__} accepts {row}, but a run without a judge", advice):
        asyncio.run(subject.method.score(subject.run(turns, sample), sample, None))


@holds("reward", requires=("reward_is_repeatable",))
def turn_rewards_stay_with_their_turns(subject: Subject) -> None:
    """What a turn earns is repeatable, and a refused call earns it nothing and moves no other turn's reward, because
    each number raises the probability of this turn's tokens."""
    if not subject.method.turn_components:
        raise NotApplicable("the method does not pay single turns")
    subject.call_turn()
    for rollout in subject.rollouts:
        if not rollout.trajectory.turns:
            continue
        *before, last = _turn_rewards(subject, rollout, rollout.trajectory)
        if (again := _turn_rewards(subject, rollout, rollout.trajectory)) != [*before, last]:
            raise fail("rewards of turns, scored again,", again, "use no random values, latencies or caches")
        changed = _with_refused_calls(subject, rollout.trajectory)
        *others, refused = _turn_rewards(subject, rollout, changed)
        more = [name for name, value in refused.items() if value > max(last.get(name, 0.0), 0.0) + _TINY]
        if others != before or more:
            what = f"rewards of the turns of a rollout of the kind {rollout.kind!r}, refused calls in the last one,"
            raise fail(what, [*others, refused], "pay each turn by its own `executed_calls`")


def _turn_rewards(subject: Subject, rollout: Rollout, trajectory: Trajectory) -> list[dict[str, float]]:
    scored = copy.deepcopy(trajectory)
    asyncio.run(subject.method.score(scored, rollout.sample, WorldJudge()))
    return [turn.rewards for turn in scored.turns]


# -------------------------------------------------------------------------------------------------------------- groups


@holds("reward", requires=("grading_separates_right_from_wrong",))
def group_rewards_follow_the_rollout(subject: Subject) -> None:
    """`score_group` gives each rollout the same finite numbers in any order of its group, because the order means
    nothing."""
    if not subject.method.group_components:
        raise NotApplicable("the method does not compare rollouts")
    group = [
        rollout
        for rollout in subject.rollouts
        if rollout.sample is subject.sample and rollout.trajectory.stop_reason not in (StopReason.VIDEO_ERROR, None)
    ]
    earned = _group_rewards(subject, group, [rollout.trajectory for rollout in group])
    turned = group[::-1]
    again = _group_rewards(subject, turned, [rollout.trajectory for rollout in turned])[::-1]
    for rollout, before, after in zip(group, earned, again, strict=True):
        if any(abs(after[name] - value) > _TINY for name, value in before.items()):
            what = f"a rollout of the kind {rollout.kind!r} earns {before}, and in another order"
            raise fail(what, after, "return the results in the order of `trajectories`")


def _group_rewards(
    subject: Subject, group: Sequence[Rollout], trajectories: Sequence[Trajectory]
) -> list[dict[str, float]]:
    """What each rollout earns by comparison with its siblings, on copies."""
    method = subject.method
    rewards = [dict(rollout.reward) for rollout in group]
    alone = [{"acc": method.acc(reward, subject.sample), **reward} for reward in rewards]
    try:
        compared = group_rewards(method, copy.deepcopy(trajectories), alone, subject.sample)
    except GroupScoreError as error:
        raise fail(f"a group of {len(group)} rollouts", error, "return one dictionary of numbers for each") from error
    return [{name: reward[name] for name in method.group_components} for reward in compared]
