"""What users configure: fields checked against their types, `field=value` texts, and parts that they name."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from verl_video_tools.core.errors import UsageError


def checked_fields(config_class: type[Any], values: Mapping[str, Any], section: str | None = None) -> dict[str, Any]:
    """`values` as the types that `config_class` (a dataclass) declares.

    Args:
        section: what messages call it; None: the name of the class.

    Raises:
        UsageError: a field does not exist (lists those that do, and names the nearest), or a value has the wrong type.
    """
    section = section or config_class.__name__
    names = sorted(field.name for field in fields(config_class))
    annotations = get_type_hints(config_class)
    checked = {}
    for name, value in values.items():
        if name not in names:
            raise UsageError(
                f"{section} has no field {name!r}; its fields are: {', '.join(names)}{did_you_mean(name, names)}"
            )
        try:
            checked[name] = _converted(value, annotations[name])
        except TypeError:
            expected = getattr(annotations[name], "__name__", None) if isinstance(annotations[name], type) else None
            message = f"{section}.{name} takes {expected or annotations[name]}, got {value!r}"
            if isinstance(value, str) and value.startswith("["):
                message += '; a list is written as JSON, such as ["a", "b"]'
            raise UsageError(message) from None
    return checked


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one; empty where none is near."""
    return "".join(f"; did you mean {nearest!r}?" for nearest in get_close_matches(name, list(names), n=1))


def require(config: object, name: str, condition: bool, expected: str) -> None:
    """Check the range of a field, from a config's `__post_init__`.

    Raises:
        UsageError: `condition` is False; names the field, what is wanted and the value.
    """
    if not condition:
        raise UsageError(f"{type(config).__name__}.{name} must be {expected}, got {getattr(config, name)!r}")


def require_at_least(config: object, least: int, *names: str) -> None:
    """Check that fields are no smaller than `least`; see `require`."""
    for name in names:
        require(config, name, getattr(config, name) >= least, f"at least {least}")


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


def read_assignments(assignments: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """The fields given as `--set field=value`, or with another option; a value that is not JSON is taken as a string.

    Raises:
        UsageError: an assignment has no `=` or no field, or names a field twice.
    """
    settings: dict[str, Any] = {}
    for assignment in assignments:
        field, equals, value = assignment.partition("=")
        if not equals or not field:
            raise UsageError(f"{option}: expected field=value, got {assignment!r}")
        if field in settings:
            raise UsageError(f"{option}: the field {field!r} was given twice")
        try:
            settings[field] = json.loads(value)
        except (ValueError, RecursionError):
            settings[field] = value
    return settings


def resolve(spec: str, registered: Mapping[str, str], kind: str) -> Any:
    """The object of a registered name, or at a Python path such as `my_module:MyClass`. Only its module is imported.

    Args:
        spec: what the user wrote.
        registered: Python path of each name, `module:attribute`.
        kind: what is named, for messages: "benchmark".

    Raises:
        UsageError: the name is not registered and no path, or the object cannot be imported.
    """
    path = registered.get(spec, spec)
    named = repr(spec) if path == spec else f"{spec!r} ({path})"
    if ":" not in path:
        raise UsageError(
            f"there is no {kind} {spec!r}; choose one of: {', '.join(registered)}, or name your own as module:Class"
        )
    try:
        return resolve_name(path)
    except Exception as error:  # the module is the user's, and may fail in any way
        advice = "write it as module:Class, with the module installed or on PYTHONPATH"
        if not isinstance(error, ImportError | AttributeError | ValueError):
            advice = "the module was found, and raises this"
        raise UsageError(f"the {kind} {named} cannot be imported: {type(error).__name__}: {error}; {advice}") from error
