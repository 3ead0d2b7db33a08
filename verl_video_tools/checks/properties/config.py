"""Properties of a method's class and of its config."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import VIDEOS
from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.types import Method, PixelEnvelope

_TAKEN = ("score", "acc", "flagged")
_GROUP_SIZE = 8


@holds("config")
def config_has_defaults(subject: Subject) -> None:
    """The class can be built without arguments, because every process of a run builds it by its name."""
    cls: type[Any] = type(subject.method)
    try:
        cls()
    except Exception as error:
        raise fail(f"{cls.__name__}() raises", error, "give every field a default within its range") from error


@holds("config")
def class_has_a_name(subject: Subject) -> None:
    """`name` is a lower-case identifier, because rows, options and metrics carry it."""
    name = getattr(type(subject.method), "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise fail("the class attribute `name`", name, "write a lower-case identifier such as 'my_method'")


@holds("config")
def reward_components_are_named(subject: Subject) -> None:
    """`reward_components` are different names that nothing else has, because each is a column of every row."""
    names: Any = subject.method.reward_components
    if not isinstance(names, tuple) or not names or len(set(names)) < len(names):
        raise fail("`reward_components`", names, "write a tuple of one or more different names")
    if taken := [name for name in names if name in _TAKEN or not re.fullmatch(r"\w+", name)]:
        raise fail("`reward_components` holds a name that is taken or no identifier", taken, "choose another name")
    if unknown := set(subject.method.unpaid_components) - set(names):
        raise fail("`unpaid_components` that are no `reward_components`", sorted(unknown), "take them out")


@holds("config")
def config_fields_are_declared(subject: Subject) -> None:
    """What the class sets is a field of the config, because one without its type or `@dataclass` has no effect."""
    cls = type(subject.method)
    known = {own.name for own in fields(subject.method)}
    hints = get_type_hints(cls, include_extras=True)
    annotated = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", {})}
    own = {name for name in annotated if not str(hints.get(name)).startswith("typing.ClassVar")}
    if missing := sorted(own - known):
        raise fail(
            f"{cls.__name__} annotates what is no field",
            missing,
            "decorate the class: @dataclass(frozen=True, kw_only=True)",
        )
    defaults = {own.name: own.default for own in fields(subject.method) if own.default is not MISSING}
    if untyped := sorted(name for name, default in defaults.items() if getattr(cls, name) is not default):
        raise fail(
            f"{cls.__name__} assigns fields without their type, which leaves their defaults as they were",
            untyped,
            "annotate them, as in `max_turns: int = 4`",
        )


@holds("config", requires=("config_has_defaults",))
def config_is_frozen(subject: Subject) -> None:
    """No field can be assigned and every value can be hashed, because rollouts at the same time share one config."""
    method = subject.method
    for own in fields(method):
        try:
            setattr(replace(method), own.name, getattr(method, own.name))
        except FrozenInstanceError:
            pass
        else:
            raise fail(f"the field {own.name} can be assigned", own.name, "write @dataclass(frozen=True, kw_only=True)")
        try:
            hash(getattr(method, own.name))
        except TypeError:
            value = getattr(method, own.name)
            raise fail(f"the field {own.name} can change in place", value, "use a tuple or a number") from None


@holds("config", requires=("config_is_frozen", "config_fields_are_declared"))
def config_fields_are_typed(subject: Subject) -> None:
    """Each value is of its annotated type, because `--set` and Hydra's values are checked against the annotation."""
    method = subject.method
    for own in fields(method):
        value = getattr(method, own.name)
        try:
            checked = checked_fields(type(method), {own.name: value})[own.name]
        except (UsageError, TypeError, NameError) as error:
            raise fail(
                f"the field {own.name} does not fit its annotation: {error}", value, "mend one of the two"
            ) from error
        if checked != value and not (isinstance(value, float) and math.isnan(value)):
            raise fail(f"the field {own.name} changes when it is read back", checked, f"make the default {checked!r}")


@holds("config", requires=("config_fields_are_typed", "initial_frames_of_any_video", "prompt_of_any_video"))
def config_values_are_checked(subject: Subject) -> None:
    """A number out of range is refused with a UsageError, because a value that fails later fails in every rollout."""
    for name, value in _odd_values(subject.method):
        try:
            odd = replace(subject.method, **{name: value})
        except UsageError:
            continue
        except Exception as error:
            raise fail(f"{name}={value!r} raises", error, "check it in check_fields by `require`") from error
        try:
            for info in (VIDEOS["ten seconds"], VIDEOS["an hour"]):
                request = odd.plan_initial_frames(info, subject.sample, PixelEnvelope())
                sized = request.width >= 1 and request.height >= 1
                odd.tools(info)
        except Exception as error:
            raise fail(
                f"{name}={value!r} is accepted, and then no frames can be planned", error, "refuse it in check_fields"
            ) from error
        if not sized:
            size = (request.width, request.height)
            raise fail(f"{name}={value!r} is accepted, and gives frames of no size", size, "refuse it in check_fields")


def _odd_values(method: Method) -> Iterator[tuple[str, Any]]:
    common = {own.name for own in fields(Method)}
    for name, annotation in get_type_hints(type(method)).items():
        if name in common or name not in {own.name for own in fields(method)}:
            continue
        kinds = {annotation, *get_args(annotation)} - {type(None)}
        value = getattr(method, name)
        if int in kinds and not isinstance(value, tuple):
            yield from ((name, odd) for odd in (-1, 0))
        elif float in kinds and not isinstance(value, tuple):
            yield from ((name, odd) for odd in (-1.0, 0.0, math.nan))


@holds("config")
def python_paths_resolve(subject: Subject) -> None:
    """`oracle`, `synthetic_question` and `dialogue_templates` name what exists, because they are looked up late."""
    cls = type(subject.method)
    for attribute in ("oracle", "synthetic_question"):
        path = getattr(cls, attribute)
        if path is None:
            continue
        try:
            resolve_name(path)
        except Exception as error:
            raise fail(f"`{attribute}` {path!r} cannot be imported", error, "write it as module:name") from error


@holds("config", requires=("config_fields_are_typed", "configs_compare_by_value"))
def rollouts_of_a_group_differ_in_rollout_fields(subject: Subject) -> None:
    """`for_session` changes no field but a number, flag or choice, because rows and records may set nothing else."""
    for number, validate in _sessions():
        own = subject.method.for_session(number, _GROUP_SIZE, validate)
        try:
            settings = own.own_settings(subject.method)
        except UsageError as error:
            raise fail(
                f"for_session({number}, {_GROUP_SIZE}, {validate}): {error}", own, "change other fields"
            ) from error
        if method_of_rollout(subject.method, settings) != own:
            raise fail(
                f"the settings of for_session({number}) do not give its config", settings, "use replace(self, ...)"
            )


@holds("config", requires=("rollouts_of_a_group_differ_in_rollout_fields",))
def rollouts_of_a_group_are_repeatable(subject: Subject) -> None:
    """`for_session` is a function of its arguments, because a run that is resumed makes the same rollouts again."""
    for number, validate in _sessions():
        first, again = (subject.method.for_session(number, _GROUP_SIZE, validate) for _ in range(2))
        if first != again:
            raise fail(
                f"for_session({number}, {_GROUP_SIZE}, {validate}) differs from call to call", again, "draw nothing"
            )


def _sessions() -> list[tuple[int, bool]]:
    return [(number, validate) for number in range(_GROUP_SIZE) for validate in (False, True)]


@holds("config")
def components_are_awaited(subject: Subject) -> None:
    """`components` and each tool's `plan` are coroutine functions, because the loop awaits them."""
    if not inspect.iscoroutinefunction(subject.method.components):
        raise fail("`components` is no coroutine function", subject.method.components, "write `async def components`")
    try:
        tools = subject.method.tools(subject.info)
    except Exception as error:
        raise NotApplicable(f"tools() raises {error!r}; `tools_of_any_video` tells of it") from error
    for name, tool in tools.items():
        if not inspect.iscoroutinefunction(tool.plan):
            raise fail(f"`plan` of the tool {name!r} is no coroutine function", tool.plan, "write `async def plan`")
