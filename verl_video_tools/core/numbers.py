"""Read the numbers and arithmetic expressions of a text."""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal
from typing import Any

MAX_CHARACTERS = 200
"""Longest text of a number."""

# fmt: off
_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)
# fmt: on

# At most nine digits, possessive, and only from the first digit on. Otherwise a text of thousands of digits would be
# read from each digit to the end, on the event loop of all rewards.
DIGITS = r"\d{1,9}+(?!\d)"
"""Pattern of a whole number within a time."""
_CLOCK = re.compile(rf"(?:({DIGITS}):)?({DIGITS}):({DIGITS}(?:\.\d++)?)")

_MAX_DIGITS = 50
_DECIMAL = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)")


def canonical_number(text: str) -> str | None:
    """``5`` for ``5``, ``5.0``, ``+5`` and `` 5. ``, ``1000`` for ``1,000``; None for anything but such a decimal."""
    plain = unicodedata.normalize("NFKC", text).replace("\u2212", "-").strip()
    if len(plain) > _MAX_DIGITS or not _DECIMAL.fullmatch(plain):
        return None
    value = Decimal(plain.replace(",", ""))
    if "." not in plain:
        return str(int(value))
    number = f"{value:f}".rstrip("0").rstrip(".")
    return "0" if number in ("-0", "") else number


def number_of_word(text: str) -> int | None:
    """The number of a word from ``zero`` to ``twenty``; None for anything else, also with other words beside it."""
    word = text.strip(" .!\n").casefold()
    return _NUMBER_WORDS.index(word) if word in _NUMBER_WORDS else None


def clock_seconds(text: Any) -> float | None:
    """Seconds of a time such as ``75.5``, ``01:15`` or ``0:01:15.5``; None for anything else."""
    text = str(text).strip()
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


# ---------------------------------------------------------------------------------------------------------- expressions

_SUPERSCRIPTS = {ord(sign): digit for sign, digit in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True)}
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_SUBSCRIPT = re.compile("[\u2080-\u208e]")
_VULGAR_FRACTION = re.compile("(?<=\\d)(?=[\u00bc-\u00be\u2150-\u215e])")
_SIGNS = str.maketrans("\u2212\u2044\u00d7\u00f7", "-/*/")
_TAG = re.compile(r"</?[a-zA-Z_]{1,20}>")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s?\{([^{}]*)\}")
_DEGREES = re.compile(r"\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})")
_EMPHASIS = re.compile(r"(?<!\S)\*{1,3}(?=\S)|(?<=\S)\*{1,3}(?![\w({\\.\s])|(?<=\S)\*{1,3}(?=\s|$)|[`_]")
# "m^2", "m2", "H2O": digits of a unit or a name. Behind a number only "5m2": "5to7", "5x3", "2h30" are two numbers.
_UNIT = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]+ ?\^ ?(?:\{-?\d+\}|-?\d+)"
    r"|(?<![\\A-Za-z\d])(?!(?:or|to|vs|and|x)\d)[A-Za-z]+\d\w*|(?<=\d)(?!(?:e|or|to|vs|and|x)\d)[a-z]+[23](?![\w.])",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"(?P<bad>\d:\d|\d ?!|\\base|\d\.\d+\.\d)"
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,2}(?!\w))?|(?<![\d.])\.\d+)"
    r"|(?P<operator>\*\*|[-+*/^%]|\\(?:times|cdot|div)(?![a-zA-Z])|\\%)"
    r"|(?P<root>\\sqrt)|(?P<fraction>\\[dt]?frac)|(?P<pi>\\pi(?![a-zA-Z]))"
    r"|(?P<open>[({])|(?P<close>[)}])"
    r"|(?P<skip>\s+|\\(?:left|right|boxed|[,;! ()\[\]])|\$)"
    r"|(?P<separator>[^\W\d]+|.)",
    re.DOTALL,
)
_OPERATORS = {"**": "^", "\\times": "*", "\\cdot": "*", "\\div": "/", "\\%": "%"}
_MAX_EXPONENT = 99
_MAX_DEPTH = 8

_Token = tuple[str, str]


def values_of(text: str) -> list[float] | None:
    """The values of all numbers and expressions that a text states, from left to right.

    Fractions, mixed numbers (``3 1/2`` is 3.5), percentages, thousands separators, powers (``10²``, ``1.5e3``),
    arithmetic and LaTeX are read, and a number word that is the whole text. Other words, units and markup separate
    numbers.

    Returns:
        None if the text is too long, or if a part is not a plain number: a clock time, a factorial, an unknown.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    text = _cleaned(text)
    if (number := number_of_word(text)) is not None:
        return [float(number)]
    runs: list[list[_Token]] = [[]]
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if kind == "bad":
            return None
        if kind == "separator":
            runs.append([])
        elif kind != "skip":
            runs[-1].append((kind, match[0]))
    values = []
    for run in runs:
        if any(kind in ("number", "pi") for kind, _ in run):
            try:
                values += _Expressions(run).values()
            except (ArithmeticError, ValueError):
                return None
    return values if all(math.isfinite(value) for value in values) else None


def _cleaned(text: str) -> str:
    text = _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPTS), _VULGAR_FRACTION.sub(" ", text))
    text = _SUBSCRIPT.sub("\\\\base", text)  # 10 to some base is another number
    text = unicodedata.normalize("NFKC", text).translate(_SIGNS).replace("{,}", ",")
    return _UNIT.sub("#", _EMPHASIS.sub("", _DEGREES.sub(" ", _TEXT.sub(r" \1 ", _TAG.sub(" ", text)))))


class _Expressions:
    """A parser of consecutive expressions."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = [(kind, _OPERATORS.get(text, text)) for kind, text in tokens]
        self.position = 0
        self.depth = 0

    def values(self) -> list[float]:
        values: list[float] = []
        while self._kind() is not None:
            if self._kind() == "close" or (values and self._kind() == "operator"):  # of a bracket around words
                self.position += 1
            elif any(kind in ("number", "pi") for kind, _ in self.tokens[self.position :]):
                values.append(self._sum())
            else:
                break
        return values

    def _kind(self) -> str | None:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else None

    def _next_is(self, texts: str) -> bool:
        return self._kind() == "operator" and self.tokens[self.position][1] in texts

    def _take(self) -> str:
        if self.position >= len(self.tokens):
            raise ValueError("the expression ends early")
        self.position += 1
        return self.tokens[self.position - 1][1]

    def _sum(self) -> float:
        value = self._product()
        while self._next_is("+-"):
            value += self._product() if self._take() == "+" else -self._product()
        return value

    def _product(self) -> float:
        value = self._signed()
        while self._next_is("*/"):
            value = value * self._signed() if self._take() == "*" else value / self._signed()
        return value

    def _sign(self) -> float:
        sign = 1.0
        while self._next_is("+-"):
            sign = -sign if self._take() == "-" else sign
        return sign

    def _signed(self) -> float:
        sign = self._sign()
        return sign * self._power()

    def _power(self) -> float:
        value = self._operand()
        while self._next_is("^%"):
            if self._take() == "%":
                value /= 100
                continue
            sign = self._sign()
            exponent = sign * self._operand()
            if abs(exponent) > _MAX_EXPONENT or self._next_is("^"):
                raise ValueError("the power is too large")
            value = math.pow(value, exponent)
        return value

    def _operand(self) -> float:
        kind, text = self._kind(), self._take()
        if kind == "number":
            return self._mixed(float(text.replace(",", "")), text)
        if kind == "pi":
            return math.pi
        if kind == "root":
            return math.sqrt(self._group())
        if kind == "fraction":
            return self._group() / self._group()
        if kind == "open":
            self.position -= 1
            return self._group()
        raise ValueError(f"{text!r} is no operand")

    def _group(self) -> float:
        if self._kind() != "open":
            return float(self._take())
        self.position += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError("too many brackets")
        value = self._sum()
        self.depth -= 1
        if self._kind() == "close":
            self.position += 1
        return value

    def _mixed(self, value: float, text: str) -> float:
        """With the fraction of a mixed number: ``3 1/2``, ``3\\frac{1}{2}``."""
        following = self.tokens[self.position : self.position + 3]
        if not text.isdecimal() or not following:
            return value
        if following[0][0] == "fraction":
            self.position += 1
            return value + self._group() / self._group()
        if (
            len(following) == 3
            and following[1][1] == "/"
            and following[0][1].isdecimal()
            and following[2][1].isdecimal()
        ):
            self.position += 3
            return value + float(following[0][1]) / float(following[2][1])
        return value


# ------------------------------------------------------------------------------------------------------------ estimates

# All characters that may be part of a number, so that "1/2", "0:34" and "3-4" are each one match, which is no number.
_CANDIDATE = re.compile(r"[+-]?(?<![A-Za-z_])[.\d](?:[\d.,:/]|(?<=\d)[eE][+-]?(?=\d)|-(?=\d))*")
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])(\}?) ?\^ ?(?:\{[+-]?\d\}|[+-]?\d)")
"""Of ``25 m^2``; NFKC makes letters of ``m\u00b2``."""
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")


def estimate(text: str) -> float | None:
    """The number that a text states, also with words and a unit around it; None if it states none or several.

    Thousands separators and exponents are read; fractions, clock times, ranges and number words are not.
    """
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").strip()
    if len(text) > MAX_CHARACTERS:
        return None
    text = _UNIT_POWER.sub(r"\1", text)
    numbers = [part.rstrip(".,:/") for part in _CANDIDATE.findall(text) if any(map(str.isdigit, part))]
    if len(numbers) != 1 or not _NUMBER.fullmatch(numbers[0]):
        return None
    value = float(numbers[0].replace(",", ""))
    return value if math.isfinite(value) else None
