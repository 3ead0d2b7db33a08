"""Methods with one fault each, and the property that catches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from verl_video_tools.core.types import Method

FAULTS: dict[type[Method], str] = {}
_Class = TypeVar("_Class", bound=type[Method])


def caught_by(property_name: str) -> Callable[[_Class], _Class]:
    """Register a class as a fault of this property."""

    def register(cls: _Class) -> _Class:
        FAULTS[cls] = property_name
        return cls

    return register
