"""What a property is: a named function whose docstring says, in one sentence, what must hold and why."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from verl_video_tools.checks.subject import Subject

Check = Callable[[Subject], None]


@dataclass(frozen=True)
class Property:
    """One thing that must hold of every method.

    Attributes:
        must: one sentence: what must hold, and why.
        requires: properties without which this one cannot be asked; where one of them fails, this one is not asked, so
            that one fault is told once.
        check: returns where it holds, and else raises `outcome.Failed` or `outcome.NotApplicable`.
    """

    name: str
    group: str
    must: str
    requires: tuple[str, ...]
    check: Check


def holds(group: str, *, requires: tuple[str, ...] = ()) -> Callable[[Check], Property]:
    """Make a property of a function; its name is the property's."""

    def as_property(check: Check) -> Property:
        name: str = getattr(check, "__name__", "")
        return Property(name, group, " ".join((inspect.getdoc(check) or "").split()), requires, check)

    return as_property
