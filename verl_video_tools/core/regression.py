"""Grade an estimate by how near it is to the truth: one less its relative error (Video-R1, arXiv 2503.21776)."""

from __future__ import annotations

import math
import re
import unicodedata

MAX_CHARACTERS = 200
"""A longer answer states no number."""
EQUAL_RELATIVE = 1e-6
"""Relative error up to which an estimate counts as the truth itself."""

# Whatever may be part of a number, so that "1/2", "0:34" and "3-4" are one find each, which is none.
_CANDIDATE = re.compile(r"[+-]?(?<![A-Za-z_])[.\d](?:[\d.,:/]|(?<=\d)[eE][+-]?(?=\d)|-(?=\d))*")
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])(\}?) ?\^ ?(?:\{[+-]?\d\}|[+-]?\d)")
"""Of ``25 m^2``; NFKC makes letters of ``m\u00b2``."""
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")


def estimate(text: str) -> float | None:
    """The only number that a text states, words and a unit around it aside; None if it states none or several.

    Thousands separators and exponents are read; fractions, clock times, ranges and number words are not.
    """
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").strip()
    if len(text) > MAX_CHARACTERS:
        return None
    text = _UNIT_POWER.sub(r"\1", text)
    found = [part.rstrip(".,:/") for part in _CANDIDATE.findall(text) if any(map(str.isdigit, part))]
    if len(found) != 1 or not _NUMBER.fullmatch(found[0]):
        return None
    value = float(found[0].replace(",", ""))
    return value if math.isfinite(value) else None


def relative_accuracy(answer: str | None, truth: str) -> float:
    """One less the relative error of the answer, from 0 to 1: 1 where it is the truth, 0 from an error of the truth's
    own size on, or where it states no number.

    For a truth of 0 only 0 scores above 0.

    Raises:
        ValueError: the truth is no number.
    """
    gold = estimate(truth)
    if gold is None:
        raise ValueError(f"the truth of an estimate must be a number, got {truth!r:.80}")
    value = None if answer is None else estimate(answer)
    if value is None:
        return 0.0
    if math.isclose(value, gold, rel_tol=EQUAL_RELATIVE):
        return 1.0
    return 0.0 if gold == 0 else max(0.0, 1.0 - abs(value - gold) / abs(gold))
