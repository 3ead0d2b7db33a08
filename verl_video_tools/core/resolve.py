"""Parts that a user names: one of ours by its registered name, one of their own by its Python path."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from verl_video_tools.core.errors import UsageError


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
