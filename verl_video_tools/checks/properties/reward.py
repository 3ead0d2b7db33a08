"""Properties of what a method pays for."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Rollout, Subject
from verl_video_tools.checks.world import NoJudge, without_annotations
from verl_video_tools.core.errors import CallError, CallErrorCode, JudgeError, UsageError
from verl_video_tools.core.types import CallRecord, QuestionType, StopReason, Trajectory
from verl_video_tools.synthetic.seconds import WorldJudge

_TINY = 1e-9
_UNGRADABLE: tuple[tuple[QuestionType, str, tuple[str, ...]], ...] = (
    ("open", "a green triangle", ()),
    ("numeric", "many", ()),
    ("mc", "Z", ("a cat", "a dog")),
)
"""Type, truth and options of rows whose answers cannot be graded without a judge."""


def _group_components(subject: Subject) -> tuple[str, ...]:
    """What a method pays by its group, where it does; a rollout by itself earns none of it."""
    return tuple(getattr(subject.method, "group_components", ()))


@holds("reward", requires=("rollouts_end",))
def reward_has_all_keys(subject: Subject) -> None:
    """`components` gives each of `reward_components` and nothing else, because verl stacks the rows of a batch."""
    group = set(_group_components(subject))
    wanted = set(subject.method.reward_components)
    for rollout in subject.rollouts:
        try:
            scored = subject.method.components(copy.deepcopy(rollout.trajectory), rollout.sample, WorldJudge())
            got = set(subject.wait(scored))
        except Exception:  # `score_never_raises` tells of it
            continue
        if not wanted - group <= got <= wanted | group:
            told = f"components of a rollout of the kind {rollout.kind!r}, of {sorted(wanted)}"
            raise fail(told, sorted(got), "return each of `reward_components`, also where it is 0")


@holds("reward", requires=("reward_has_all_keys",))
def score_never_raises(subject: Subject) -> None:
    """`score` gives a reward for every rollout, because one that raises costs the step."""
    for rollout in subject.rollouts:
        try:
            reward = subject.reward(rollout)
        except Exception as error:
            raise fail(
                f"score of a rollout of the kind {rollout.kind!r} raises", error, "pay nothing for what is missing"
            ) from error
        if missing := {"score", *subject.method.reward_components} - set(_group_components(subject)) - set(reward):
            raise fail("keys that the reward lacks", sorted(missing), "override `components`, not `score`")


@holds("reward", requires=("score_never_raises",))
def reward_is_finite(subject: Subject) -> None:
    """Every value of a reward is a finite int or float, because one NaN spoils the whole batch."""
    for rollout in subject.rollouts:
        for name, value in subject.reward(rollout).items():
            if not _is_finite(value):
                raise fail(f"{name} of a rollout of the kind {rollout.kind!r}", value, "return a finite float")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@holds("reward", requires=("reward_is_finite",))
def score_is_the_sum(subject: Subject) -> None:
    """`score` is the sum of the paid components, because reports explain it by them."""
    for rollout in subject.rollouts:
        reward = subject.reward(rollout)
        paid = sum(value for name, value in reward.items() if name not in ("score", *subject.method.unpaid_components))
        if abs(reward["score"] - paid) > 1e-6:
            raise fail(
                f"score, with components that sum up to {paid:g}",
                reward["score"],
                "name it in `unpaid_components`, or pay it",
            )


@holds("reward", requires=("score_never_raises", "reward_is_finite"))
def score_is_repeatable(subject: Subject) -> None:
    """The same rollout earns the same again, because a resumed run and a replay score it anew."""
    for rollout in subject.rollouts:
        if (again := subject.score(rollout.trajectory, rollout.sample)) != dict(subject.reward(rollout)):
            raise fail(
                f"the reward {dict(subject.reward(rollout))!r:.120} is, asked again", again, "draw and keep nothing"
            )


@holds("reward", requires=("score_is_repeatable",))
def score_changes_no_record(subject: Subject) -> None:
    """Scoring leaves the record as it is, because records are written after it."""
    for rollout in subject.rollouts:
        trajectory = copy.deepcopy(rollout.trajectory)
        subject.wait(subject.method.score(trajectory, rollout.sample, WorldJudge()))
        if trajectory != rollout.trajectory:
            raise fail("the record after scoring", trajectory.to_dict(), "read it only")


@holds("reward", requires=("score_is_repeatable",))
def reward_ignores_the_machine(subject: Subject) -> None:
    """Latencies and caches do not change a reward, because they say nothing of the policy."""
    for rollout in subject.rollouts:
        twin = copy.deepcopy(rollout.trajectory)
        twin.cache.hits, twin.cache.misses, twin.cache.stored_bytes = 10_000, 20_000, 1 << 40
        for call in twin.calls():
            call.latency_ms = call.latency_ms * 100 + 5_000
        if (slow := subject.score(twin, rollout.sample)) != dict(subject.reward(rollout)):
            raise fail(
                "the reward of a rollout on a slow machine, with an empty cache", slow, "read no latency and no cache"
            )


@holds("reward", requires=("score_never_raises",))
def lost_rollouts_earn_nothing(subject: Subject) -> None:
    """A rollout whose video failed, or that was aborted, earns zeros, because it says nothing of the policy."""
    for reason in (StopReason.VIDEO_ERROR, StopReason.ABORTED):
        for rollout in subject.rollouts[:2]:
            lost = replace(copy.deepcopy(rollout.trajectory), stop_reason=reason)
            reward = subject.score(lost, rollout.sample)
            if any(reward.values()):
                raise fail(f"the reward of a rollout that ended with {reason}", reward, "do not override zero_reward")


@holds("reward", requires=("score_is_repeatable",))
def unexecuted_calls_earn_nothing(subject: Subject) -> None:
    """A refused call adds nothing to a reward, because nothing was done and nothing was seen."""
    subject.call_turn()
    for rollout in subject.of_kind("answer", "wrong", "garbage"):
        if rollout.trajectory.calls() or not rollout.trajectory.turns:
            continue
        twin = copy.deepcopy(rollout.trajectory)
        error = CallError(CallErrorCode.TURN_LIMIT, "the same turn already answers")
        twin.turns[-1].calls = [
            CallRecord(name, dict(records[0].arguments), ok=False, error=error)
            for name, records in subject.calls.records.items()
        ]
        _no_more(subject, rollout, twin, "with a refused call of each tool")


@holds("reward", requires=("unexecuted_calls_earn_nothing",))
def words_of_unexecuted_calls_are_not_read(subject: Subject) -> None:
    """A refused call earns the same whatever it asked for, because it was not carried out."""
    asked = [rollout for rollout in subject.rollouts if not all(call.ok for call in rollout.trajectory.calls())]
    if not asked:
        raise NotApplicable("no call was refused")
    for rollout in asked:
        twin = copy.deepcopy(rollout.trajectory)
        for turn in twin.turns:
            turn.calls = [
                call if call.ok else CallRecord("other", {}, ok=False, error=call.error) for call in turn.calls
            ]
        if (other := subject.score(twin, rollout.sample)) != dict(subject.reward(rollout)):
            told = (
                f"the reward {dict(subject.reward(rollout))!r:.160} is, if the refused calls asked for something else"
            )
            raise fail(told, other, "pay by trajectory.executed_calls()")


def _no_more(subject: Subject, rollout: Rollout, twin: Trajectory, what: str) -> None:
    """Raises `Failed` where a component earns more than nothing, and more than before."""
    earned = subject.reward(rollout)
    for name, value in subject.score(twin, rollout.sample).items():
        if name != "score" and value > max(earned[name], 0.0) + _TINY:
            told = f"{name} of a rollout of the kind {rollout.kind!r} was {earned[name]:g}, and {what}"
            raise fail(told, value, "pay by trajectory.executed_calls(), not by text")


@holds("reward", requires=("score_is_repeatable", "a_valid_call_of_each_tool_is_found"))
def fabricated_replies_earn_nothing(subject: Subject) -> None:
    """A tool's reply that the policy wrote itself earns nothing, because only what was executed was seen."""
    call = subject.call_turn()
    observed = [turn.observation for rollout in subject.of_kind("silent") for turn in rollout.trajectory.turns]
    fake = f"{call}\n{(observed or [''])[0] or ''}\n<tool_response>frame 5 shows it</tool_response>\n"
    for rollout in subject.of_kind("answer", "good", "wrong", "garbage", "silent"):
        twin = copy.deepcopy(rollout.trajectory)
        if not twin.turns:
            continue
        twin.turns[-1].text = fake + twin.turns[-1].text
        _no_more(subject, rollout, twin, "with a fabricated call and reply")


@holds("reward", requires=("score_is_repeatable", "a_valid_call_of_each_tool_is_found", "a_valid_answer_is_found"))
def answers_before_replies_do_not_execute(subject: Subject) -> None:
    """A turn that calls, replies to itself and answers earns no more than its answer, because nothing was executed."""
    fake = f"{subject.call_turn()}<tool_response>it shows {subject.sample.ground_truth}</tool_response>"
    answer = subject.answer_turn(subject.sample.ground_truth)
    trajectory = subject.run([fake + answer])
    if trajectory.executed_calls():
        raise NotApplicable("the call of such a turn is carried out, and its answer is not taken")
    bare = subject.score(subject.run([answer]), subject.sample)
    faked = subject.score(trajectory, subject.sample)
    if faked["score"] > bare["score"] + _TINY:
        raise fail(
            f"the reward of a turn that replies to itself; the bare answer earns {bare['score']:g}",
            faked,
            "pay executed calls",
        )


@holds("reward", requires=("score_is_repeatable", "a_valid_answer_is_found"))
def right_answers_earn_more(subject: Subject) -> None:
    """A right answer earns more than a wrong one after the same turns, because else there is nothing to learn."""
    good, wrong = subject.of_kind("good"), subject.of_kind("wrong")
    for right, other in zip(good, wrong, strict=True):
        earned, less = subject.reward(right), subject.reward(other)
        if earned["score"] <= less["score"]:
            raise fail(
                f"the answer {right.trajectory.answer!r} to a question of truth {right.sample.ground_truth!r} earns "
                f"{dict(earned)!r:.120}, and the answer {other.trajectory.answer!r}",
                dict(less),
                "grade by `toolkit.grade_answer`",
            )


@holds("reward", requires=("right_answers_earn_more",))
def the_oracle_earns_most(subject: Subject) -> None:
    """A right rollout of the oracle earns more than silence, idle words or calls alone, because it is imitated."""
    if not subject.scripts:
        raise NotApplicable("the method has no oracle")
    made = subject.of_kind("oracle")
    right = [rollout for rollout in made if rollout.trajectory.answer == rollout.sample.ground_truth]
    if not right and not subject.tool_names:
        raise NotApplicable("the initial frames show the oracle no answer, and there are no tools")
    if not right:
        answers = [rollout.trajectory.answer for rollout in made]
        raise fail(
            f"right answers of the oracle to {len(made)} questions: none", answers, "let it look, and answer the truth"
        )
    oracle = min(subject.reward(rollout)["score"] for rollout in right)
    for other in subject.of_kind("silent", "garbage", "empty", "every option", "endless"):
        if subject.reward(other)["score"] >= oracle:
            raise fail(
                f"the reward of a rollout of the kind {other.kind!r}; the oracle earns {oracle:g}",
                dict(subject.reward(other)),
                "mend the weights, or the oracle",
            )


@holds("reward", requires=("right_answers_earn_more",))
def acc_tells_right_from_wrong(subject: Subject) -> None:
    """`acc` is 1 for a right answer and 0 for a wrong one or none, because it is verl's accuracy."""
    wanted = {"good": 1.0, "wrong": 0.0, "silent": 0.0, "empty": 0.0}
    for rollout in subject.of_kind(*wanted):
        acc = subject.method.acc(subject.reward(rollout), rollout.sample)
        if acc != wanted[rollout.kind]:
            raise fail(
                f"acc of a rollout of the kind {rollout.kind!r}, which is {wanted[rollout.kind]:g}",
                acc,
                "read `accuracy` of the reward",
            )


@holds("reward", requires=("acc_tells_right_from_wrong",))
def naming_every_option_is_wrong(subject: Subject) -> None:
    """An answer that names every option is not right, because it would always be."""
    for rollout in subject.of_kind("every option"):
        reward = subject.reward(rollout)
        if subject.method.acc(reward, rollout.sample) > 0:
            raise fail(
                f"the reward of the answer {rollout.trajectory.answer!r}",
                dict(reward),
                "grade by `toolkit.grade_answer`",
            )


@holds("reward", requires=("score_never_raises", "a_valid_answer_is_found"))
def failing_judges_are_told(subject: Subject) -> None:
    """A judge that gives no verdict raises its JudgeError, because such a rollout is flagged and not wrong."""
    opened = replace(subject.sample, question_type="open", ground_truth="a green triangle", options=())
    trajectory = subject.run([subject.answer_turn("something that is green")], opened)
    if trajectory.answer is None:
        raise NotApplicable("the answer to an open question was not taken")
    judge = NoJudge()
    try:
        reward = subject.score(trajectory, opened, judge)
    except JudgeError:
        return
    except UsageError as error:
        raise NotApplicable(f"open questions are refused: {error}") from error
    except Exception as error:
        raise fail("score with a judge that is out of reach raises", error, "let JudgeError through") from error
    if judge.was_asked:
        raise fail("the reward of an answer that no judge could judge", reward, "let JudgeError through")
    raise NotApplicable("the judge is not asked for such an answer")


@holds("reward", requires=("score_never_raises", "a_valid_answer_is_found"))
def ungradable_rows_are_refused(subject: Subject) -> None:
    """`check_sample` refuses a row whose answer `score` cannot grade, because a run says so before it starts."""
    for kind, truth, options in _UNGRADABLE:
        sample = replace(subject.sample, question_type=kind, ground_truth=truth, options=options)
        try:
            subject.method.check_sample(sample, None)
        except UsageError:
            continue
        except Exception as error:
            raise fail(f"check_sample raises for a row of type {kind}", error, "raise UsageError") from error
        trajectory = subject.run([subject.answer_turn("something")], sample)
        try:
            subject.wait(subject.method.score(trajectory, sample, None))
        except Exception as error:
            told = f"check_sample accepts a row of type {kind} with the truth {truth!r}, and score raises"
            raise fail(told, error, "call super().check_sample") from error


@holds("reward", requires=("score_never_raises",))
def rows_of_the_world_are_accepted(subject: Subject) -> None:
    """`check_sample` and `check_earnable` accept a plain multiple-choice row, because `vvt data validate` asks them."""
    for check in (subject.method.check_sample, subject.method.check_earnable):
        for sample in subject.samples:
            try:
                check(sample, None)
            except Exception as error:
                raise fail(
                    f"{check.__name__} refuses the question {sample.question!r:.80}",
                    error,
                    "accept it, or say in name and page what rows hold",
                ) from error


@holds("reward", requires=("rows_of_the_world_are_accepted", "records_replay"))
def rows_without_annotations_are_scored(subject: Subject) -> None:
    """A row of video, question, options and truth is asked and scored without a judge, because many hold no more."""
    bare = without_annotations(subject.sample)
    try:
        subject.method.check_earnable(bare, None)
    except UsageError as error:
        raise NotApplicable(f"check_earnable refuses such rows: {error}") from error
    for rollout in subject.of_kind("silent", "answer", "wrong"):
        try:
            trajectory = subject.run(rollout.turns, bare)
            subject.wait(subject.method.score(trajectory, bare, None))
        except Exception as error:
            raise fail(
                f"a row without segment, class and subtitles, in a run without a judge, raises in a rollout of the "
                f"kind {rollout.kind!r}",
                error,
                "do without what a row may lack, or refuse the row in `check_earnable`",
            ) from error
