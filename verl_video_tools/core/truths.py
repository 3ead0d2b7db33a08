"""The truth of a row in the form that graders compare, independent of its data set."""

from __future__ import annotations

import json
import math
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from verl_video_tools.core.numbers import canonical_number, clock_seconds, number_of_word

QuestionType = Literal["mc", "numeric", "regression", "open", "segment"]
Options = Sequence[str] | Mapping[str, str]

CJK = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
"""A character of Japanese, Chinese or Korean, which may follow a letter without a space."""
_QUOTES = "\"'\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
_MARKUP = re.compile(r"</?(?:answer|b|i|em|strong)>|\\(?:text|mathrm|textbf|mathbf|boxed)(?![a-zA-Z])|[*`$\\{}]")
_LETTER = re.compile(r"[(\[]?\s?([A-Z])\s?(?:[)\].:,]{0,2}|[)\].:]{1,2}\s*(?P<text>\S.*))", re.IGNORECASE | re.DOTALL)
_LABEL = re.compile(r"(?<![\w.])\(?[A-Z](?:[).:]|$)")
"""Another letter in a truth that names several options."""


def plain_text(text: str) -> str:
    """A short text for comparison, without case, spacing and outer punctuation."""
    return " ".join(text.casefold().replace("\u2212", "-").split()).strip(" .,;:!?\u3002" + _QUOTES)


def without_article(plain: str) -> str:
    """A plain text without the English article that it begins with."""
    return re.sub(r"^(?:an?|the) (?=\S\S)", "", plain)


_MAX_VALUE_CHARACTERS = 40
_ENDS = re.compile(r"(?:from )?([\d:.]+)(?: ?[-~\u2013\u2014] ?| to )([\d:.]+)")


def by_value(plain: str) -> str:
    """A plain text that is a number, a time on the clock or two such times in a form that equal values share: ``3`` for
    ``three`` and ``3.0``, ``20-30 s`` for ``0:20 to 0:30`` and ``00:20-00:30``; any other text as it is."""
    if len(plain) > _MAX_VALUE_CHARACTERS:
        return plain
    number = number_of_word(plain)
    if number is not None:
        return str(number)
    ends = _ENDS.fullmatch(plain)
    times = [clock_seconds(time) if ":" in time else None for time in (ends.groups() if ends else (plain,))]
    seconds = [f"{time:.10g}" for time in times if time is not None]
    return f"{'-'.join(seconds)} s" if len(seconds) == len(times) else canonical_number(plain) or plain


@dataclass(frozen=True)
class Menu:
    """The options of a question; empty if they are not known.

    Attributes:
        texts: by letter in upper case, as `plain_text` gives them without markup and without their letter.
    """

    texts: Mapping[str, str]

    def has(self, letter: str) -> bool:
        """Whether the letter is in the menu; always true for an empty menu."""
        return not self.texts or letter in self.texts

    def letter_of(self, text: str) -> str | None:
        """The letter of the only option with this text, or else with its value (`by_value`); an article before it is
        ignored."""
        plain = plain_text(text)
        for compared in (lambda option: option, without_article, by_value):
            letters = [letter for letter, option in self.texts.items() if plain and compared(option) == compared(plain)]
            if len(letters) == 1:
                return letters[0]
        return None


def menu_of(options: Options | None) -> Menu:
    """The menu of options, given in the order of their letters or by letter."""
    pairs = (
        options.items() if isinstance(options, Mapping) else zip(string.ascii_uppercase, options or (), strict=False)
    )
    return _menu(tuple((str(letter).strip().upper(), str(text)) for letter, text in pairs))


@lru_cache(maxsize=1024)
def _menu(pairs: tuple[tuple[str, str], ...]) -> Menu:
    return Menu({letter: plain_text(_without_label(text, letter)) for letter, text in pairs})


def _without_label(text: str, letter: str) -> str:
    text = _MARKUP.sub("", unicodedata.normalize("NFKC", text)).strip()
    return re.sub(rf"^\(?{re.escape(letter)}\s*[.):]\s*", "", text, flags=re.IGNORECASE)


def letter_of_truth(truth: str, menu: Menu) -> str | None:
    """The upper-case letter that a truth names, also if it is not in the menu; None if it is neither a letter nor the
    text of an option."""
    text = _MARKUP.sub("", unicodedata.normalize("NFKC", truth)).strip().strip(_QUOTES).strip()
    if letter := menu.letter_of(text):
        return letter
    match = _LETTER.fullmatch(text)
    if match is None:
        return None
    letter = match[1].upper()
    if match["text"] and (menu.letter_of(match["text"]) != letter if menu.texts else _LABEL.search(match["text"])):
        return None
    return letter


def canonical_letter(truth: str, options: Options | None) -> str | None:
    """The upper-case letter of the option that a truth names: ``B`` for ``(B)``, ``B.``, ``b``, ``B. dog`` and ``dog``.

    Args:
        truth: as a row has it.
        options: their texts in order, or by letter; without them any letter is accepted, and no text.

    Returns:
        None if `truth` names no option, several, or one letter and another option's text.
    """
    if isinstance(options, Sequence) and truth in string.ascii_uppercase[: len(options)] and len(truth) == 1:
        return truth  # most data sets have this form, and rows are read often
    menu = menu_of(options)
    letter = letter_of_truth(truth, menu)
    return letter if letter is not None and menu.has(letter) else None


def segment_of(ground_truth: str) -> tuple[float, float] | None:
    """The segment in seconds of a truth that is ``[start, end]`` as JSON with start < end; None for any other text."""
    try:
        numbers = json.loads(ground_truth)
        start, end = map(float, numbers)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    if not isinstance(numbers, list):
        return None
    return (start, end) if math.isfinite(end - start) and start < end else None


def canonical_truth(truth: str, question_type: QuestionType, options: Sequence[str]) -> str:
    """A truth as graders compare it: the letter of the named option, or a number in canonical form.

    Other truths, and those of open questions, are returned unchanged. `Method.check_sample` decides whether such a row
    can be graded.
    """
    if question_type == "open":
        return truth
    if question_type == "mc":
        return canonical_letter(truth, options or None) or truth
    return canonical_number(truth) or truth


def default_question_type(ground_truth: str, options: Sequence[str] = ()) -> QuestionType:
    """`mc` if there are options or the truth is only a letter (``B``, ``(B)``, ``B.``), `segment` if the truth is a
    segment (`segment_of`), otherwise `open`."""
    is_only_a_letter = canonical_letter(ground_truth, None) is not None and sum(map(str.isalnum, ground_truth)) == 1
    if options or is_only_a_letter:
        return "mc"
    return "open" if segment_of(ground_truth) is None else "segment"
