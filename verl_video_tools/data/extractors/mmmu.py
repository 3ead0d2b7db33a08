"""MMMU's reader of options, which other benchmarks' scripts took over.

Source: `parse_multi_choice_response` of lmms_eval/tasks/nextqa/utils.py and lmms_eval/tasks/video_holmes/utils.py,
after eval/eval_utils.py of github.com/MMMU-Benchmark/MMMU; `parse_videommmu_multi_choice_response` of
lmms_eval/tasks/_task_utils/mmmu_mcq_utils.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.data.extractors.choices import letter_extractor, letters_of

_OUTER_MARKS = ",.!?;:'"
_WORDS_OF_A_LETTER = 5
"""Texts of options are looked for only in an answer of more words."""

Stage = tuple[tuple[str, ...], str | None]
"""Forms of letters that are looked for together, and the form by which the last of several is found; None: the first
of the forms that occurs."""

_MMMU: tuple[Stage, ...] = ((("({})",), "({})"), (("{} ",), " {} "), (("{}.",), " {} "))
_VIDEO_MMMU_2025: tuple[Stage, ...] = ((("{}.", "{}:"), None), (("({})",), "({})"), (("{} ",), " {} "))


def mmmu_letter(answer: str, options: Sequence[str], stages: Sequence[Stage] = _MMMU) -> str | None:
    """The letter of the first form that occurs, else the option whose text does; of several the last.

    What makes it odd is kept: of letters before a period those with spaces around decide which is the last, so that
    it is the first of them in most answers.
    """
    text = _padded(answer)
    for forms, by in stages:
        found = [(form, letter) for form in forms for letter in letters_of(options) if form.format(letter) in text]
        if found:
            place = by or found[0][0]
            return max((letter for _, letter in found), key=lambda letter: text.rfind(place.format(letter)))
    if len(text.split()) <= _WORDS_OF_A_LETTER:
        return None
    lower = text.lower()
    places = {
        letter: lower.rfind(option.strip().lower())
        for letter, option in zip(letters_of(options), options, strict=False)
        if option.strip().lower() in lower
    }
    return max(places, key=places.__getitem__, default=None)


def _padded(answer: str) -> str:
    """Without marks around it, and with a space at either end."""
    for mark in _OUTER_MARKS:
        answer = answer.strip(mark)
    return f" {answer} "


def video_mmmu_letter_2025(answer: str, options: Sequence[str]) -> str | None:
    """As Video-MMMU's script of 2025: a letter before a period or a colon comes first."""
    return mmmu_letter(answer, options, _VIDEO_MMMU_2025) if answer else None


def ego_schema_letter(answer: str, options: Sequence[str]) -> str | None:
    """Of all letters in brackets, before a space or before a period the one that is last used before the others.

    Texts of options are not looked for: the published ones begin with their letter and a period.

    Source: `parse_multi_choice_response` of lmms_eval/tasks/egoschema/utils.py.
    """
    text = _padded(answer)
    forms = ((form.format(letter), letter) for form in ("({})", "{} ", "{}.") for letter in letters_of(options))
    found = [(text.rfind(form), letter) for form, letter in forms if form in text]
    return min(found, key=lambda place: place[0])[1] if found else None


EGO_SCHEMA = letter_extractor(
    ego_schema_letter,
    "(A), A before a space or A.; of several letters that whose last use comes first; without any a random option",
    draws=True,
)
MMMU = letter_extractor(
    mmmu_letter,
    "(A), else A before a space, else A., else the text of an option; the last of several; without any a random option",
    draws=True,
)
