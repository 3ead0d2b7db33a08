"""Numbers in calls: how arguments are read, and how limits are told."""

from __future__ import annotations

import math
from typing import Any


def finite_number(value: Any, *, read_text: bool) -> float | None:
    """`value`, a call's argument from JSON, as a finite number; None if it is none.

    Args:
        read_text: also read text such as ``"12.5"``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str) if read_text else (int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def format_seconds(seconds: float, decimals: int = 2) -> str:
    """A duration as a model reads it: rounded down, since a call for a rounded-up one would be refused."""
    rounded = round(seconds, decimals)
    return f"{rounded if rounded <= seconds else rounded - 10**-decimals:.{decimals}f}"
