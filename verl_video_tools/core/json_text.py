"""JSON objects in what models write: the one of a call, as far as a record can carry it, and those amid other words."""

from __future__ import annotations

import json
import math
import re
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

    An object that is nested deeper than 100 levels, or whose text has no UTF-8 (half a surrogate pair), is none. Takes
    time in proportion to the length of the text.
    """
    return (found for found, _, _ in located_json_objects(text))


def located_json_objects(text: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """As `json_objects`, each object with the places in `text` where it begins and ends."""
    position = 0
    while (start := text.find("{", position)) >= 0:
        spans, position = _object_spans(text, start)
        for begin, end in spans:
            try:
                found = json.loads(text[begin:end])
                json.dumps(found, ensure_ascii=False).encode()
            except ValueError:
                continue
            yield found, begin, end


# One token of JSON after white space. Possessive: an unclosed string is scanned once and not tried again.
_TOKEN = re.compile(
    r"[ \t\r\n]*+(?:([{}\[\],:])"
    r'|("[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")'
    r"|(-?(?:0|[1-9]\d*+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+|true|false|null|NaN|-?Infinity))",
    re.ASCII,
)
_MAX_DEPTH = 100
_VALUE = frozenset({"{", "[", "string", "scalar"})
_AFTER = {
    "{": frozenset({"string", "}"}),
    "[": _VALUE | {"]"},
    "key": frozenset({":"}),
    ":": _VALUE,
    ", in {": frozenset({"string"}),
    ", in [": _VALUE,
    "value in {": frozenset({",", "}"}),
    "value in [": frozenset({",", "]"}),
}
"""Which tokens may follow."""


def _object_spans(text: str, start: int) -> tuple[list[tuple[int, int]], int]:
    """Where the object at `start` lies, or, if it breaks off, the complete ones within it; and where to look on.

    json's decoder cannot be asked at every brace: each refusal counts the lines before it, and what nested beginnings
    share is read again from every one of them.
    """
    complete: list[tuple[int, int]] = []
    levels: list[tuple[str, int, int]] = []  # bracket, where it stands, how many objects were complete before it
    allowed, begin, position = frozenset({"{"}), start, start
    while (token := _TOKEN.match(text, position)) and len(levels) <= _MAX_DEPTH:
        kind = token[1] or ("string" if token[2] else "scalar")
        if kind not in allowed:
            break
        is_key = kind == "string" and allowed in (_AFTER["{"], _AFTER[", in {"])
        begin, position = token.start(token.lastindex or 0), token.end()
        if kind in ("{", "["):
            levels.append((kind, begin, len(complete)))
            allowed = _AFTER[kind]
            continue
        if kind in ("}", "]"):
            _, opened, before = levels.pop()
            if kind == "}":
                complete[before:] = [(opened, position)]
            if not levels:
                return complete, position
        within = levels[-1][0]
        allowed = _AFTER["key" if is_key else ":" if kind == ":" else f"{',' if kind == ',' else 'value'} in {within}"]
    return complete, begin + 1


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")
