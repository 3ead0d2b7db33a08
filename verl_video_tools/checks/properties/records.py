"""Properties of a rollout's record."""

from __future__ import annotations

import json
from typing import Any

from verl_video_tools.checks.outcome import fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Subject
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.types import Trajectory

_OF_THE_MACHINE = ("latency_ms", "cache")
_SESSION, _GROUP_SIZE = 3, 8


@holds("records", requires=("rollouts_end", "plans_can_be_recorded"))
def records_are_json(subject: Subject) -> None:
    """A record is JSON without NaN and reads back as it was, because all that follows reads files."""
    for rollout in subject.rollouts:
        data = rollout.trajectory.to_dict()
        try:
            text = json.dumps(data, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise fail(
                f"a record that is no JSON ({error})", data["turns"], "keep numbers and texts in results and arguments"
            ) from error
        again = Trajectory.from_dict(json.loads(text)).to_dict()
        if again != json.loads(text):
            raise fail(
                "a record that reads back otherwise",
                again["turns"],
                "keep lists and numbers, not tuples or keys of numbers",
            )


@holds("records", requires=("records_are_json", "score_is_repeatable"))
def records_earn_the_same(subject: Subject) -> None:
    """A record that was written and read earns the same, because reports and exports score records."""
    for rollout in subject.rollouts:
        read = Trajectory.from_dict(json.loads(json.dumps(rollout.trajectory.to_dict())))
        if (reward := subject.score(read, rollout.sample)) != dict(subject.reward(rollout)):
            raise fail(
                f"the reward read from the record; it was {dict(subject.reward(rollout))!r:.120}",
                reward,
                "read what records keep",
            )


@holds(
    "records",
    requires=(
        "records_are_json",
        "initial_frames_are_repeatable",
        "prompt_is_repeatable",
        "observations_are_pure",
        "plans_are_repeatable",
    ),
)
def records_replay(subject: Subject) -> None:
    """The recorded turns give the same record again, because exports and evaluation replay them."""
    for rollout in subject.rollouts:
        turns = [turn.text for turn in rollout.trajectory.turns]
        again = _comparable(subject.run(turns, rollout.sample))
        recorded = _comparable(rollout.trajectory)
        for key in (*recorded.keys() - {"stop_reason"},):
            if again[key] != recorded[key]:
                raise fail(
                    f"{key} of the replay of a rollout of the kind {rollout.kind!r}",
                    again[key],
                    "keep nothing between rollouts",
                )


def _comparable(trajectory: Trajectory) -> dict[str, Any]:
    return _without(json.loads(json.dumps(trajectory.to_dict())))


def _without(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without(value) for key, value in data.items() if key not in _OF_THE_MACHINE}
    return [_without(value) for value in data] if isinstance(data, list) else data


@holds("records", requires=("records_replay", "rollouts_of_a_group_are_repeatable"))
def settings_of_a_rollout_replay(subject: Subject) -> None:
    """A rollout of a group is replayed from the run's config and its settings, because the record keeps no more."""
    method = subject.method.for_session(_SESSION, _GROUP_SIZE, False)
    settings = json.loads(json.dumps(method.own_settings(subject.method)))
    again = method_of_rollout(subject.method, settings)
    first, replayed = (_comparable(subject.run(subject.rollouts[0].turns, method=each)) for each in (method, again))
    if first != replayed:
        raise fail("the replay with the recorded settings", settings, "let for_session change fields alone")


@holds("records", requires=("rollouts_end",))
def recorded_frames_are_true(subject: Subject) -> None:
    """Each recorded frame has its index, the time of that frame and its size, because rewards compare times."""
    world = subject.world
    for rollout in subject.rollouts:
        frames = [
            *rollout.trajectory.initial_frames,
            *(frame for call in rollout.trajectory.calls() for frame in call.frames),
        ]
        for frame in frames:
            right = 0 <= frame.index < world.spec.num_frames and min(frame.width, frame.height) >= 1
            if not right or abs(frame.timestamp_seconds - world.seconds_of(frame.index)) > 1e-3:
                raise fail("a recorded frame", frame, "leave frames to the loop")


@holds("records", requires=("records_replay",))
def records_name_the_method(subject: Subject) -> None:
    """A record names the method, because whoever reads it looks the method up by that name."""
    named = {rollout.trajectory.method for rollout in subject.rollouts}
    if named != {type(subject.method).name}:
        raise fail("methods that the records name", sorted(named), "let `name` be a class attribute")
