"""How a property that does not simply hold says so."""

from __future__ import annotations

from typing import Any


class Failed(Exception):
    """A property does not hold. The text says what was wrong, the value, and what to do."""


class NotApplicable(Exception):
    """A property asks for what the method does not have, or what could not be found. The text says what."""


def fail(what: str, got: Any, advice: str) -> Failed:
    """The error of a property that does not hold: what was wrong, the value, and what to do."""
    shown = f"{type(got).__name__}({str(got)!r})" if isinstance(got, OSError) else repr(got)  # its repr has no file
    return Failed(f"{what}, got {shown:.300}; {advice}")
