"""Check values for the fields of a config dataclass against their annotations."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from verl_video_tools.errors import UsageError
from verl_video_tools.methods.templates import check_templates
from verl_video_tools.prompt_files import check_placeholders
from verl_video_tools.types import FrameSelector, Method


def checked_fields(config_class: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as the types that `config_class` (a dataclass) declares.

    Raises:
        UsageError: a field does not exist (lists those that do), or a value has the wrong type.
    """
    known = sorted(field.name for field in fields(config_class))
    renamed: Mapping[str, str] = getattr(config_class, "renamed_fields", {})
    annotations = get_type_hints(config_class)
    checked = {}
    for name, value in values.items():
        if name in renamed:
            raise UsageError(f"{config_class.__name__} has no field {name!r} any more; set {renamed[name]} instead")
        if name not in known:
            raise UsageError(f"{config_class.__name__} has no field {name!r}; its fields are: {', '.join(known)}")
        try:
            checked[name] = _converted(value, annotations[name])
        except TypeError:
            wanted = getattr(annotations[name], "__name__", None) if isinstance(annotations[name], type) else None
            raise UsageError(
                f"{config_class.__name__}.{name} takes {wanted or annotations[name]}, got {value!r}"
            ) from None
    return checked


@cache
def rollout_fields(method_class: type[Method]) -> frozenset[str]:
    """The fields that may differ from rollout to rollout, and that rows and records may set: numbers, flags, choices
    among given words, and tuples of them.

    A text of any other kind could name code or a file, so it is the user's own configuration that sets it, for the
    whole run. That holds for every field of a type not known to be harmless, whoever has written the method.
    """
    annotations = get_type_hints(method_class)
    return frozenset(own.name for own in fields(method_class) if _is_closed(annotations[own.name]))


def _is_closed(annotation: Any) -> bool:
    """Whether a value of this type can be neither a path nor the name of code."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return True
    if origin is tuple or origin in (Union, types.UnionType):
        return all(_is_closed(argument) for argument in arguments if argument is not Ellipsis)
    return annotation in (bool, int, float, type(None))


def method_of_rollout(run: Method, settings: Mapping[str, Any]) -> Method:
    """The method of one rollout: the run's, with the fields that were the rollout's own.

    Every reader of recorded rollouts goes through here: reward, metrics, replay, export, fine-tuning.

    Args:
        run: from the user's configuration.
        settings: `Trajectory.settings`, from a record or a row.

    Raises:
        UsageError: a field does not exist, may not be set for one rollout (`rollout_fields`), or its value is wrong.
    """
    if not settings:
        return run
    of_the_run = {own.name for own in fields(run)} - rollout_fields(type(run))
    if refused := sorted(settings.keys() & of_the_run):
        raise UsageError(
            f"a rollout's settings may not hold {', '.join(refused)} of {type(run).__name__}: what can name code or a "
            f"file is taken from your own configuration alone. Take it out of the settings, and set it there (--set, "
            f"or video_tools.{run.name}) if you want it"
        )
    return replace(run, **checked_fields(type(run), settings))


def require(config: object, name: str, condition: bool, wanted: str) -> None:
    """Check the range of a field, from a config's `__post_init__`.

    Raises:
        UsageError: `condition` is False; names the field, what is wanted and the value.
    """
    if not condition:
        raise UsageError(f"{type(config).__name__}.{name} must be {wanted}, got {getattr(config, name)!r}")


def require_common(method: Method) -> None:
    """Check the fields that every method has.

    Raises:
        UsageError: as `require` and `check_templates`.
    """
    require(method, "max_turns", method.max_turns >= 1, "at least 1")
    limit = method.max_turn_tokens
    require(method, "max_turn_tokens", limit is None or limit >= 1, "at least 1, or None")
    if method.first_look_selector is not None:
        load_selector(method.first_look_selector)
    require(method, "tool_deadline_seconds", method.tool_deadline_seconds > 0, "above 0")
    check_templates(method)
    if method.prompt_file is not None:
        check_placeholders(method.prompt_file, method.renamed_fields)


def load_selector(path: str) -> FrameSelector:
    """The selector at a Python path such as `package.module:function`.

    Raises:
        UsageError: there is none.
    """
    module_name, _, name = path.partition(":")
    try:
        selector: FrameSelector = getattr(import_module(module_name), name)
        if not callable(selector):
            raise TypeError(f"{selector!r:.80} is no function")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"first_look_selector={path!r}: {error}; write it as package.module:function, importable on every node"
        ) from error
    return selector


def _converted(value: Any, annotation: Any) -> Any:
    """`value` if it is of the annotated type; lists become tuples and whole numbers floats. Raises TypeError."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, arguments)
    if origin is Literal:
        if value in arguments and not isinstance(value, bool):
            return value
    elif origin is tuple:
        return _converted_tuple(value, arguments)
    elif annotation is type(None):
        if value is None:
            return None
    elif annotation is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, annotation) and (annotation is bool or not isinstance(value, bool)):
        return value
    raise TypeError


def _first_that_fits(value: Any, annotations: Sequence[Any]) -> Any:
    for annotation in annotations:
        try:
            return _converted(value, annotation)
        except TypeError:
            continue
    raise TypeError


def _converted_tuple(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError
    if arguments[-1] is Ellipsis:
        return tuple(_converted(item, arguments[0]) for item in value)
    if len(value) != len(arguments):
        raise TypeError
    return tuple(_converted(item, annotation) for item, annotation in zip(value, arguments, strict=True))
