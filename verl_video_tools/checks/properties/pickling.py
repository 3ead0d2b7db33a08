"""Properties of what travels between processes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cached_property

from verl_video_tools.checks.outcome import fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Subject


@holds("pickling", requires=("config_fields_are_typed",))
def configs_compare_by_value(subject: Subject) -> None:
    """Two configs with the same values are equal and hash alike, because rollouts of a group are identified by it."""
    copy = replace(subject.method)
    if copy != subject.method or hash(copy) != hash(subject.method):
        raise fail("a copy of the config differs", copy, "keep eq, and keep no values beside the fields")


@holds("pickling", requires=("configs_compare_by_value",))
def config_survives_pickling(subject: Subject) -> None:
    """The config is the same after pickling, because Ray sends it to workers."""
    try:
        again = pickle.loads(pickle.dumps(subject.method))
    except Exception as error:
        raise fail(
            "the config cannot be pickled", error, "keep plain values in fields, and the class at module level"
        ) from error
    if again != subject.method:
        raise fail("the config after pickling", again, "keep plain values in fields")


@holds("pickling", requires=("config_survives_pickling", "prompt_is_repeatable", "parse_never_raises"))
def pickled_configs_act_alike(subject: Subject) -> None:
    """A pickled config plans, writes and reads alike, because loop and reward run in different processes."""
    again = pickle.loads(pickle.dumps(subject.method))
    if again.prompt(subject.sample, subject.info, subject.planned()) != subject.prompt():
        raise fail("the prompt of the pickled config differs", again, "keep all that matters in fields")
    for turn in subject.given:
        if repr(again.parse(turn)) != repr(subject.method.parse(turn)):
            raise fail(
                "the pickled config reads a turn otherwise", again.parse(turn), "keep all that matters in fields"
            )


@holds("pickling", requires=("config_survives_pickling", "rollouts_end"))
def nothing_is_kept_beside_the_fields(subject: Subject) -> None:
    """After rollouts the config has no more attributes than a new one, because what it keeps other processes miss."""
    subject.rollouts  # noqa: B018 (they are made by it)
    new, used = vars(replace(subject.method)), vars(subject.method)
    cached = {name for name in used if isinstance(getattr(type(subject.method), name, None), cached_property)}
    if kept := sorted(name for name in used.keys() - cached if name not in new or new[name] != used[name]):
        raise fail(
            "attributes that the config got from rollouts", kept, "compute them anew, or by a function with @cache"
        )


@holds("pickling", requires=("rollouts_end",))
def records_survive_pickling(subject: Subject) -> None:
    """A rollout's record is the same after pickling, because workers hand it to the trainer."""
    for rollout in subject.rollouts:
        try:
            again = pickle.loads(pickle.dumps(rollout.trajectory))
        except Exception as error:
            raise fail("a record cannot be pickled", error, "keep plain values in results and arguments") from error
        if again != rollout.trajectory:
            raise fail("a record after pickling", again.to_dict(), "keep plain values in results and arguments")
