"""The truth of a row in one form, whatever form its data set has: read so, no form of writing decides on a reward."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from verl_video_tools.core.choices import canonical_letter
from verl_video_tools.core.segments import segment_of

QuestionType = Literal["mc", "numeric", "regression", "open", "segment"]

_MAX_DIGITS = 50
_DECIMAL = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)")


def canonical_truth(truth: str, question_type: QuestionType, options: Sequence[str]) -> str:
    """A truth as graders compare it: the letter of the option that it names, or a number without what does not count.

    One that names no option, or is no plain number, stays as it is, and so does that of an open question: whether such
    a row can be graded is asked elsewhere (`Method.check_sample`).
    """
    if question_type == "open":
        return truth
    if question_type == "mc":
        return option_letter(truth, options) or truth
    return canonical_number(truth) or truth


def option_letter(truth: str, options: Sequence[str]) -> str | None:
    """`canonical_letter`; at once where the truth is that letter, as in most data sets, which are read often."""
    if len(truth) == 1 and truth in string.ascii_uppercase[: len(options) or None]:
        return truth
    return canonical_letter(truth, options or None)


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
