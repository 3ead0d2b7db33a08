"""Grade a numeric answer: numbers and arithmetic expressions of them, compared by math-verify.

math-verify guards against endless computations by signals, which work in a process's main thread only. Here they are
switched off, and texts that could compute for long are not handed to it.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from functools import lru_cache
from typing import Any

from verl_video_tools.errors import UsageError

MAX_CHARACTERS = 200
"""A longer answer is no number."""

_MAX_POWERS = 2
"""Powers and roots in one text: numbers of thousands of digits and nested radicals keep sympy busy for minutes."""
_TOWER = re.compile(r"\^\s*\{?\s*[+-]?\d+\s*\}?\s*\^")
"""An exponent that is a power itself: two are enough for a number that fits into no memory (9^99^99)."""
# Digits and signs, plain words around them, and LaTeX that cannot blow up: an exponent has two digits at most. No
# factorials, sums or functions; no clock times (0:34), whose digits math-verify would read as numbers of their own.
_HARMLESS = re.compile(
    r"(?:[^\\^!*:\d]|\*(?!\*)|(?<!\d):|:(?!\d)|\d(?![eE][+-]?\d)"
    r"|\^(?:\{[+-]?\d{1,2}\}|[+-]?\d{1,2}(?!\d))"
    r"|\\(?:[dt]?frac|sqrt|cdot|times|pi|text|mathrm|boxed|left|right|approx)(?![a-zA-Z])|\\[\[\]()%$,;!{} ])*"
)
# What stands between alternatives: "4 or 5", "4, 5", "4; 5". Not the comma of 1,000.
_ALTERNATIVES = re.compile(r"\b(?:or|and|to)\b|[;\n]|,(?=\s)")


def is_number(truth: str) -> bool:
    """Whether `truth` can be compared as a number.

    Raises:
        UsageError: the package math-verify is missing.
    """
    return bool(_parse(truth))


def grade_number(answer: str, truth: str) -> bool:
    """Whether `answer` states the number `truth`, and no other.

    Fractions, decimals (equal to six places), percentages, thousands separators, arithmetic and LaTeX are understood,
    and words around them ignored: units are not compared. Number words ("twelve") and clock times are not understood;
    an answer in the very characters of the truth is right in any case.

    Raises:
        UsageError: the package math-verify is missing.
    """
    answer, truth = _normalised(answer), _normalised(truth)
    if answer == truth:
        return True
    parts = [part for part in _ALTERNATIVES.split(answer) if any(character.isdigit() for character in part)]
    gold = _parse(truth)
    if not gold or not parts or len(answer) > MAX_CHARACTERS:
        return False
    return all(_equal(gold, _parse(part)) for part in parts)


def _normalised(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").replace("\\%", "%").strip().removesuffix(".")
    return re.sub(r"^\(([^()]*)\)$", r"\1", text)


def _num_powers(text: str) -> int:
    return text.count("^") + text.count("\\sqrt")


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Any, ...]:
    """What math-verify reads in a text; nothing where it finds no number or is not asked."""
    text = _normalised(text)
    if len(text) > MAX_CHARACTERS or _num_powers(text) > _MAX_POWERS or _TOWER.search(text):
        return ()
    if not _HARMLESS.fullmatch(text):
        return ()
    found = _math_verify().parse(text, parsing_timeout=None, extraction_config=_extractors(text), raise_on_error=False)
    return tuple(found)


def _extractors(text: str) -> list[Any]:
    """LaTeX is read only where it holds no variables: simplifying polynomials is another way to compute for long."""
    math_verify = _math_verify()
    letters = re.sub(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[a-zA-Z]+", "", text)
    plain = math_verify.ExprExtractionConfig()
    return [plain] if re.search("[a-zA-Z]", letters) else [math_verify.LatexExtractionConfig(), plain]


def _equal(gold: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    return bool(found) and bool(
        _math_verify().verify(list(gold), list(found), timeout_seconds=None, raise_on_error=False)
    )


@lru_cache
def _math_verify() -> Any:
    try:
        import math_verify
    except ModuleNotFoundError as error:
        raise UsageError(
            "a numeric question needs the package math-verify: uv pip install '.[judge]' in the checkout"
        ) from error
    # Each of the two says once that its signals are off.
    for module in ("parser", "grader"):
        logging.getLogger(f"math_verify.{module}").addFilter(lambda record: "Timeout is disabled" not in record.msg)
    return math_verify
