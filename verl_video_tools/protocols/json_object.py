"""JSON objects in what models write: the one of a call, as far as a record can carry it, and those amid other words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

_MAX_CHARACTERS = 4000
_MAX_BRACKETS = 64
"""Calls are small and flat; anything deeper would break whoever stores or copies the record."""


def load_object(text: str) -> dict[str, Any]:
    """The JSON object that `text` is.

    Raises:
        ValueError: it is none, or none that a record could carry: too long or deep, with numbers that are not finite
            or text that has no UTF-8.
    """
    if len(text) > _MAX_CHARACTERS or text.count("{") + text.count("[") > _MAX_BRACKETS:
        raise ValueError(f"too long or too deep, at most {_MAX_CHARACTERS} characters")
    raw = json.loads(text, parse_float=_finite, parse_constant=_no_constant)
    if not isinstance(raw, dict):
        raise ValueError(f"it is a {type(raw).__name__}")
    json.dumps(raw, ensure_ascii=False).encode("utf-8")  # half a surrogate pair, written as an escape, has no UTF-8
    return raw


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in a text from left to right, also inside lists and code fences; not those inside others.

    An object whose text has no UTF-8 (half a surrogate pair) is none.
    """
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        end = position + 1
        try:
            found, end = decoder.raw_decode(text, position)
            json.dumps(found, ensure_ascii=False).encode()
            yield found
        except (ValueError, RecursionError):
            pass
        position = text.find("{", end)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")
