"""Grade an answer that states a number, and an estimate by how near it is to the truth."""

from __future__ import annotations

import math
import re

from verl_video_tools.core.numbers import MAX_CHARACTERS, estimate, values_of
from verl_video_tools.grading.choices import boxes

# What denies a number or only bounds it.
_NOT_EQUAL = re.compile(
    r"\b(?:not|never|neither|nor|except|(?:at\s{1,3})?(?:least|most)|(?:more|less|fewer|greater|other|rather)\s{1,3}than)\b"
    r"|n['\u2019]t\b|[<>\u2260\u2264\u2265]|\\(?:neq?|leq?|geq?|lt|gt)(?![a-zA-Z])",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-zA-Z_]{1,20}>")
_SENTENCE_END = re.compile(r"[.;!?]\s|\n")
_EQUAL_PLACES = 5e-7
"""Numbers are equal to six places."""
_EQUAL_RELATIVE = 1e-6
"""Relative error up to which an estimate counts as the truth itself."""


def grade_number(answer: str, truth: str) -> bool:
    """Whether `answer` states the number `truth`, and no other (`stated_number`).

    Units are not compared; ``50%`` is 0.5 and, without its unit, 50. An answer in the very characters of the truth is
    right in any case.
    """
    lead, content = _isolated(answer)
    gold = _isolated(truth)[1]
    if content.strip() == gold.strip() and not _NOT_EQUAL.search(lead):
        return True
    expected, stated = values_of(gold), stated_number(answer)
    if stated is None or expected is None or len(expected) != 1:
        return False
    of_answer, of_truth = (100.0 if text.rstrip(" \n.$)*\\").endswith("%") else 1.0 for text in (content, gold))
    return any(_are_equal(stated * one, expected[0] * other) for one in {1.0, of_answer} for other in {1.0, of_truth})


def stated_number(answer: str) -> float | None:
    """The one number that an answer states; what stands in boxes is the answer.

    Returns:
        None for several numbers that are not all equal (``3 4``, ``3,4``: a comma is no decimal point), for a number
        that is denied or only bounded (``not 3``, ``at least 3``, ``>3``), for number words ("twelve"), and for
        whatever `core.numbers.values_of` does not read.
    """
    lead, content = _isolated(answer)
    if len(content) > MAX_CHARACTERS or _NOT_EQUAL.search(lead) or _NOT_EQUAL.search(content):
        return None
    values = values_of(content)
    return values[0] if values and all(_are_equal(value, values[0]) for value in values) else None


def _are_equal(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-12, abs_tol=_EQUAL_PLACES)


def _isolated(text: str) -> tuple[str, str]:
    """The words of the sentences before boxes, and what the boxes hold; without boxes nothing, and the whole text."""
    text = _TAG.sub(" ", text)
    leads, contents, position = [], [], 0
    for content, start, end in boxes(text):
        leads.append(_SENTENCE_END.split(text[position:start])[-1])
        contents.append(content)
        position = end
    return (" ".join(leads), " ; ".join(contents)) if contents else ("", text)


def relative_accuracy(answer: str | None, truth: str) -> float:
    """One less the relative error of the answer, from 0 to 1 (Video-R1, arXiv 2503.21776); 0 where it states no number.

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
    if math.isclose(value, gold, rel_tol=_EQUAL_RELATIVE):
        return 1.0
    return 0.0 if gold == 0 else max(0.0, 1.0 - abs(value - gold) / abs(gold))
