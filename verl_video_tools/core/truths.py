"""The truth of a row in the one form that graders compare, whatever form its data set has."""

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

from verl_video_tools.core.numbers import canonical_number

QuestionType = Literal["mc", "numeric", "regression", "open", "segment"]
Options = Sequence[str] | Mapping[str, str]

CJK = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
"""A character of Japanese, Chinese or Korean, which are written without a space beside a letter."""
_QUOTES = "\"'\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
_MARKUP = re.compile(r"</?(?:answer|b|i|em|strong)>|\\(?:text|mathrm|textbf|mathbf|boxed)(?![a-zA-Z])|[*`$\\{}]")
_LETTER = re.compile(r"[(\[]?\s?([A-Z])\s?(?:[)\].:,]{0,2}|[)\].:]{1,2}\s*(?P<text>\S.*))", re.IGNORECASE | re.DOTALL)
_LABEL = re.compile(r"(?<![\w.])\(?[A-Z](?:[).:]|$)")
"""A further letter of a truth that names several options."""


def plain_text(text: str) -> str:
    """For comparing short texts: case, spacing and outer punctuation do not count."""
    return " ".join(text.casefold().replace("\u2212", "-").split()).strip(" .,;:!?\u3002" + _QUOTES)


def without_article(plain: str) -> str:
    """A plain text without the English article that it begins with."""
    return re.sub(r"^(?:an?|the) (?=\S\S)", "", plain)


@dataclass(frozen=True)
class Menu:
    """The options of a question; empty where the reader is given none.

    Attributes:
        texts: by letter in upper case, as `plain_text` gives them without markup and without their letter.
    """

    texts: Mapping[str, str]

    def has(self, letter: str) -> bool:
        """Whether the letter is one of the menu; without a menu, any is."""
        return not self.texts or letter in self.texts

    def letter_of(self, text: str) -> str | None:
        """The letter of the one option that has this text; an article before it does not count."""
        plain = plain_text(text)
        for compared in (lambda option: option, without_article):
            letters = [letter for letter, option in self.texts.items() if plain and compared(option) == compared(plain)]
            if len(letters) == 1:
                return letters[0]
        return None


def menu_of(options: Options | None) -> Menu:
    """The menu of options in the order of their letters, or by letter."""
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
    """The upper-case letter that a truth names, on the menu or not; None where it is no letter and no option's text."""
    text = _MARKUP.sub("", unicodedata.normalize("NFKC", truth)).strip().strip(_QUOTES).strip()
    if letter := menu.letter_of(text):
        return letter
    found = _LETTER.fullmatch(text)
    if found is None:
        return None
    letter = found[1].upper()
    if found["text"] and (menu.letter_of(found["text"]) != letter if menu.texts else _LABEL.search(found["text"])):
        return None
    return letter


def canonical_letter(truth: str, options: Options | None) -> str | None:
    """The upper-case letter of the option that a truth names: ``B`` for ``(B)``, ``B.``, ``b``, ``B. dog`` and ``dog``.

    Args:
        truth: as a row has it.
        options: their texts in order, or by letter; without them a text names nothing, and any letter is taken.

    Returns:
        None where `truth` names no option, several, or one letter and another option's text.
    """
    if isinstance(options, Sequence) and truth in string.ascii_uppercase[: len(options)] and len(truth) == 1:
        return truth  # as in most data sets, which are read often
    menu = menu_of(options)
    letter = letter_of_truth(truth, menu)
    return letter if letter is not None and menu.has(letter) else None


def segment_of(ground_truth: str) -> tuple[float, float] | None:
    """The segment ``[start, end]`` in seconds that a truth is as JSON, start < end; None for any other text."""
    try:
        numbers = json.loads(ground_truth)
        start, end = map(float, numbers)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    if not isinstance(numbers, list):
        return None
    return (start, end) if math.isfinite(end - start) and start < end else None


def canonical_truth(truth: str, question_type: QuestionType, options: Sequence[str]) -> str:
    """A truth as graders compare it: the letter of the option that it names, or a number without what does not count.

    One that names no option, or is no plain number, stays as it is, and so does that of an open question: whether such
    a row can be graded is asked elsewhere (`Method.check_sample`).
    """
    if question_type == "open":
        return truth
    if question_type == "mc":
        return canonical_letter(truth, options or None) or truth
    return canonical_number(truth) or truth


def is_choice(truth: str, options: Sequence[str]) -> bool:
    """Whether a question of no given type is multiple choice: it has options, or its truth is a letter and no more."""
    if options:
        return True
    return canonical_letter(truth, None) is not None and sum(map(str.isalnum, truth)) == 1


def default_question_type(ground_truth: str, options: Sequence[str] = ()) -> QuestionType:
    """`mc` if there are options or the truth is a letter and no more (``B``, ``(B)``, ``B.``), `segment` if it is one
    (`segment_of`), else `open`."""
    if is_choice(ground_truth, options):
        return "mc"
    return "open" if segment_of(ground_truth) is None else "segment"
