"""JSON objects in the text of a model: a whole text, such as a call, or objects between other words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

_MAX_CHARACTERS = 4000
_MAX_BRACKETS = 64
"""Calls are small and flat. Programs that store or copy records fail on deeper objects."""


def load_object(text: str) -> dict[str, Any]:
    """Parse a text that is one JSON object.

    Raises:
        ValueError: it is not an object, or not one that a record can hold: too long or deep, with infinite numbers, or
            with text that has no UTF-8 encoding.
    """
    if len(text) > _MAX_CHARACTERS or text.count("{") + text.count("[") > _MAX_BRACKETS:
        raise ValueError(f"too long or too deep, at most {_MAX_CHARACTERS} characters")
    raw = json.loads(text, parse_float=_finite, parse_constant=_no_constant)
    if not isinstance(raw, dict):
        raise ValueError(f"it is a {type(raw).__name__}")
    json.dumps(raw, ensure_ascii=False).encode("utf-8")  # half a surrogate pair, written as an escape, has no UTF-8
    return raw


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in a text from left to right, also inside lists and code fences, but not inside other objects.

    An object without a UTF-8 encoding (half a surrogate pair) is skipped. A text with thousands of false beginnings is
    read only in part, because a policy must not be able to stop an event loop by its text.
    """
    return (value for value, _, _ in located_json_objects(text))


def located_json_objects(text: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """As `json_objects`, each object with its start and end in `text`."""
    decoder, position, cost = json.JSONDecoder(), 0, 0
    while (start := _OBJECT_START.search(text, position)) and cost <= _MAX_COST * len(text):
        position = start.end()
        try:
            value, end = decoder.raw_decode(text, start.start())
            json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            position = start.start() + 1
            cost += error.pos  # the error counts the lines before its position
        except UnicodeEncodeError:
            position = end
        except (ValueError, RecursionError):  # a number with thousands of digits, or thousands of levels
            return
        else:
            position = end
            yield value, start.start(), end


_OBJECT_START = re.compile(r"\{\s*[\"}]")
_MAX_COST = 1000


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")
