"""MVBench's reader of options.

Source: `mcq_acc` of lmms_eval/tasks/mvbench/utils.py, which goes back to the scorers of visual question answering.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_video_tools.data.extractors.choices import letter_extractor

_LETTER_AND_TEXT = re.compile(r"([A-E])\.\s*.+", re.IGNORECASE)
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")
_MAX_PERIODS = 32
"""So many are cut out, because the script hands a flag over in the place of a count."""
_LETTER = re.compile(r"\b[A-E]\b", re.IGNORECASE)


def mvbench_letter(answer: str, options: Sequence[str]) -> str | None:
    """The letter before a period at the beginning of an answer of one line; else, without punctuation, the first word
    of a single letter from A to E, also the article ``a``."""
    text = answer.strip()
    if leading := _LETTER_AND_TEXT.fullmatch(text):
        return leading[1].upper()
    text = _without_punctuation(text.replace("\n", " ").replace("\t", " ").strip())
    found = _LETTER.search(text)
    return found[0].upper() if found else None


def _without_punctuation(text: str) -> str:
    """Marks that have a space beside them anywhere go; others become a space, unless a number has a comma."""
    has_grouped_number = _COMMA_IN_NUMBER.search(text) is not None
    cleaned = text
    for mark in _PUNCTUATION:
        stands_apart = has_grouped_number or f"{mark} " in text or f" {mark}" in text
        cleaned = cleaned.replace(mark, "" if stands_apart else " ")
    return _PERIOD.sub("", cleaned, count=_MAX_PERIODS)


MVBENCH = letter_extractor(
    mvbench_letter,
    "a letter before a period at the beginning, else the first word of one letter from A to E, `a` included",
)
