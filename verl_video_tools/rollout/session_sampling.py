"""Options of sampling that one rollout of a group has of its own (`Method.sampling_options`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import Method

_WANTED = {
    "temperature": "above 0",
    "top_p": "above 0 and at most 1",
    "top_k": "a whole number from 1, or -1 for all tokens",
}


def session_sampling(
    method: Method, session_id: int, group_size: int, validate: bool, sampling_params: Mapping[str, Any]
) -> dict[str, float]:
    """The rollout's own options, by verl's names; none in validation, or where verl wants the likeliest tokens.

    Args:
        method: the run's.
        sampling_params: verl's for the rollout.

    Raises:
        UsageError: the method gives another option, or a value outside its range.
    """
    if validate or not sampling_params.get("temperature", 1.0):
        return {}
    given = method.sampling_options(session_id, group_size, validate)
    return {name: _checked(method, session_id, name, value) for name, value in given.items()}


def _checked(method: Method, session_id: int, name: str, value: Any) -> float:
    where = f"{type(method).__name__}.sampling_options for rollout {session_id}"
    if name not in _WANTED:
        raise UsageError(f"{where} has {name!r}; a rollout may have its own {', '.join(_WANTED)}")
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not _in_range(name, value):
        raise UsageError(f"{where}: {name} must be {_WANTED[name]}, got {value!r}")
    return int(value) if name == "top_k" else float(value)


def _in_range(name: str, value: float) -> bool:
    if name == "top_k":
        return value == int(value) and (value >= 1 or value == -1)
    return 0 < value <= (1.0 if name == "top_p" else math.inf)
