"""Fields of a config as texts: `field=value`, as command lines and settings files have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from verl_video_tools.core.errors import UsageError


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
