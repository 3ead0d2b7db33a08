"""Grade a numeric answer: numbers and arithmetic expressions of them, compared by math-verify.

math-verify guards against endless computations by signals, which work in a process's main thread only. Here they are
switched off, and texts that could compute for long are not handed to it.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import Any

from verl_video_tools.core.choices.text import CJK, boxes

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
_MAX_DEPTH = 3
"""Brackets in brackets: what math-verify reads doubles or worse with each (40 pairs take it 24 seconds)."""
_MAX_BARS = 2
"""Bars of absolute values, which nest as well."""

_SUPERSCRIPTS = {ord(sign): digit for sign, digit in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True)}
_SIGNS = str.maketrans("\u2212\u2044\u00d7\u00f7", "-/*/")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_SUBSCRIPT = re.compile("[\u2080-\u208e]")
_VULGAR_FRACTION = re.compile("(?<=\\d)(?=[\u00bc-\u00be\u2150-\u215e])")
_ABOUT = re.compile(r"[~\u223c\u2243\u2245\u2248]|\\(?:approx|sim|simeq|cong)(?![a-zA-Z])")
_MIXED = re.compile(r"(?<![\d.,/^])(\d+) (\d+) ?/ ?(\d+)(?![\d.,/^])")
# "**5**", "_5_": no operator, which stands between numbers or brackets.
_EMPHASIS = re.compile(r"(?<![\w)\]}*])(\*\*?|__?)(?=\S)([^*_]{1,100})(?<=\S)\1(?![\w(\[{*])")
_DEGREES = re.compile(r"\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})")
_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,2})(?![\w.]*\w)")
_BRACED_POWER = re.compile(r"\^\{([+-]?\d{1,2})\}")
_PLUS = re.compile(r"(?<![\w)\]}^.{])(?<![\w)\]}] )\+(?=\d)")
"""A sign, and no operator."""
_CJK_BESIDE = re.compile(rf"(?<={CJK})(?=[\d-])|(?<=\d)(?={CJK})")
_TAG = re.compile(r"</?[a-zA-Z_]{1,20}>")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
# "m^2", "m2", "H2O": digits of a unit or a name. Behind a number only "5m2": "5to7", "5x3", "2h30" are two numbers.
_UNIT = re.compile(
    r"(?<![\\A-Za-z])([A-Za-z]+)\s?\^\s?(?:\{-?\d+\}|-?\d+)"
    r"|(?<![\\A-Za-z])(?!(?:or|to|vs|and|x)\d)(?:(?<!\d)[A-Za-z]+\d\w*|(?<=\d)(?!e\d)[a-z]+[23](?![\w.]))",
    re.IGNORECASE,
)
# math-verify takes "02-05" and "12/05" for their first number.
_LEADING_ZEROS = re.compile(r"(?<![\w.,])0+(?=\d)")
# What denies a number or only bounds it.
_NOT_EQUAL = re.compile(
    r"\b(?:not|never|neither|nor|except|(?:at\s+)?(?:least|most)|(?:more|less|fewer|greater|other|rather)\s+than)\b"
    r"|n['\u2019]t\b|[<>\u2260\u2264\u2265]|\\(?:neq?|leq?|geq?|lt|gt)(?![a-zA-Z])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.;!?]\s|\n")
_MATH_MARK = re.compile(r"\\[()\[\]]")
_WORD_OUTSIDE_MATH = re.compile(r"(\$[^$]*\$|\\[A-Za-z]+)|[A-Za-z]+")
_NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?")
# Between the digits of one expression: an operator among signs and brackets, or LaTeX's fraction and power.
_OPERATORS = re.compile(r"[\s(){}$+\-*/^%.]|\\(?:[dt]?frac|sqrt|cdot|times|pi|left|right|[,;! ])")
_HAS_OPERATOR = re.compile(r"[+\-*/^]|\}\s*\{|\\(?:[dt]?frac|sqrt|cdot|times)")
_GAP = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+|[\s,;=:]+")


def is_number(truth: str) -> bool:
    """Whether `truth` can be compared as a number: it states a single one."""
    parts = _expressions(_normalised(_set_apart(truth)[1]))
    return len(parts) == 1 and bool(_parse(parts[0]))


def grade_number(answer: str, truth: str) -> bool:
    """Whether `answer` states the number `truth`, and no other.

    Fractions, mixed numbers (``3 1/2`` is 3.5), decimals (equal to six places), percentages, thousands separators,
    powers (``10²``, ``1.5e3``), arithmetic and LaTeX are understood. What stands in boxes is the answer. Words and
    markup around a number are ignored, and "about" and its signs too: units are not compared. Wrong is an answer with
    several numbers that are not all equal (``3 4``, ``3 vs 4``, ``3,4``: a comma is no decimal point), one that denies
    its number or bounds it (``not 3``, ``at least 3``, ``>3``). Number words ("twelve") and clock times are not
    understood; an answer in the very characters of the truth is right in any case.
    """
    lead, answer = map(_normalised, _set_apart(answer))
    truth = _normalised(_set_apart(truth)[1])
    if answer == truth and not _NOT_EQUAL.search(lead):
        return True
    if len(answer) > MAX_CHARACTERS or _NOT_EQUAL.search(lead) or _NOT_EQUAL.search(answer):
        return False
    gold, stated = _expressions(truth), _expressions(answer)
    if len(gold) != 1 or not stated or not (expected := _parse(gold[0])):
        return False
    return all(_equal(expected, _parse(part)) for part in stated)


def _set_apart(text: str) -> tuple[str, str]:
    """The words of the sentences before boxes, and what the boxes hold; without boxes nothing, and the whole text."""
    leads, contents, position = [], [], 0
    for content, start, end in boxes(text):
        leads.append(_SENTENCE_END.split(text[position:start])[-1])
        contents.append(content)
        position = end
    return (" ".join(leads), " ; ".join(contents)) if contents else ("", text)


def _normalised(text: str) -> str:
    text = _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPTS), _VULGAR_FRACTION.sub(" ", text))
    text = _SUBSCRIPT.sub("\\\\base", text)  # a command that is not read: 10 to some base is another number
    text = unicodedata.normalize("NFKC", text).translate(_SIGNS).replace("\\%", "%")
    text = _MATH_MARK.sub("$", _ABOUT.sub(" ", _TAG.sub(" ", text)).replace("{,}", ",")).strip().removesuffix(".")
    text = _DEGREES.sub(" ", _EMPHASIS.sub(r"\2", text.replace("`", "")))
    text = _EXPONENT.sub(r"\1*10^{\2}", text).replace("^{+", "^{").strip().removesuffix(".")
    if not re.search(r"[$\\]", text):  # outside LaTeX math-verify takes 10^{3} for 10
        text = _BRACED_POWER.sub(r"^\1", text)
    text = _LEADING_ZEROS.sub("", text)
    text = _MIXED.sub(r"(\1+\2/\3)", _CJK_BESIDE.sub(" ", _PLUS.sub("", text)))
    return re.sub(r"^\(([^()]*)\)$", r"\1", text)


def _expressions(text: str) -> list[str]:
    """The text cut between numbers that no operator joins; a single piece where there is one expression."""
    if len(text) > MAX_CHARACTERS:
        return []
    text = _UNIT.sub(r" \1 ", _TEXT.sub(r" \1 ", text))
    if "\\" in text:  # LaTeX is not read beside words
        text = _WORD_OUTSIDE_MATH.sub(lambda match: match[1] or ";", text)
    numbers = list(_NUMBER.finditer(text))
    parts, start = [], 0
    for number, following in pairwise(numbers):
        gap = text[number.end() : following.start()]
        if _HAS_OPERATOR.search(gap) and not _OPERATORS.sub("", gap):
            continue
        cut = _GAP.search(gap)
        parts.append(text[start : number.end() + (cut.start() if cut else 0)])
        start = number.end() + (cut.end() if cut else 0)
    return [*parts, text[start:]] if numbers else []


def _num_powers(text: str) -> int:
    return text.count("^") + text.count("\\sqrt")


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Any, ...]:
    """What math-verify reads in a text; nothing where it finds no number or is not asked."""
    if len(text) > MAX_CHARACTERS or _num_powers(text) > _MAX_POWERS or _TOWER.search(text):
        return ()
    if _depth(text) > _MAX_DEPTH or text.count("|") > _MAX_BARS:
        return ()
    if not _HARMLESS.fullmatch(text):
        return ()
    math_verify = _math_verify()
    extractors: list[Any] = [math_verify.ExprExtractionConfig()]
    if _is_latex(text):
        extractors.insert(0, math_verify.LatexExtractionConfig())
        if "\\" in text and "$" not in text:  # 3\frac{1}{2} is read whole between marks only
            text = f"${text.strip(' ;:=,')}$"
    found = math_verify.parse(text, parsing_timeout=None, extraction_config=extractors, raise_on_error=False)
    return tuple(found)


def _is_latex(text: str) -> bool:
    """Whether LaTeX is read: where it holds no variables, as simplifying polynomials can take long, too."""
    return not re.search("[a-zA-Z]", re.sub(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[a-zA-Z]+", "", text))


def _equal(gold: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    return bool(found) and bool(
        _math_verify().verify(list(gold), list(found), timeout_seconds=None, raise_on_error=False)
    )


def prepare() -> None:
    """Import what comparing takes: half a second, and seconds from a cold file system."""
    _math_verify()


@lru_cache
def _math_verify() -> Any:
    import math_verify  # only numeric questions need it

    # Each of the two says once that its signals are off.
    for module in ("parser", "grader"):
        logging.getLogger(f"math_verify.{module}").addFilter(lambda record: "Timeout is disabled" not in record.msg)
    return math_verify
