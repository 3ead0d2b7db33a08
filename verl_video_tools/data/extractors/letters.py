"""Letters of options by their form and place in an answer."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

from verl_video_tools.core.truths import option_letter
from verl_video_tools.core.types import Sample
from verl_video_tools.data.extractors import Extractor, Reading

ReadLetter = Callable[[str, Sequence[str]], str | None]
"""Returns the letter that an answer gives to a question with these options, or None."""

_LEADS = ("The best answer is", "The correct answer is", "The answer is", "The answer")
_OUTER_MARKS = ",.!?;:'"
_WORDS_OF_A_LETTER = 5
"""`video_mmmu_letter` looks for texts of options only in an answer of more words."""
_STAGES = ((("{}.", "{}:"), None), (("({})",), "({})"), (("{} ",), " {} "))
"""Forms of letters that are looked for together, and the form that finds the last of several letters; None: the first
form that occurs."""


def letter_extractor(read: ReadLetter, rule: str) -> Extractor:
    """An extractor of multiple-choice questions."""

    def reading(answer: str, sample: Sample) -> Reading | None:
        if sample.question_type != "mc":
            return None
        letter = read(answer, sample.options)
        return Reading(letter, letter is not None and letter == option_letter(sample.ground_truth, sample.options))

    return Extractor(reading, rule)


def first_letter(answer: str) -> str | None:
    """The first letter from A to D anywhere, also within a word, once phrases that lead to an answer are cut out.

    Source: `extract_characters_regex` of lmms_eval/tasks/videomme/utils.py until April 2026.
    """
    text = answer.strip()
    for lead in _LEADS:
        text = text.replace(lead, "")
    found = re.search("[ABCD]", text)
    return found[0] if found else None


def video_mmmu_letter(answer: str, options: Sequence[str]) -> str | None:
    """The letter of the first form that occurs, else the option whose text does; of several the last.

    What makes it odd is kept: of letters before a period the spaces around them decide which is the last, so that it
    is the first of them in most answers.

    Source: `parse_videommmu_multi_choice_response` of lmms_eval/tasks/_task_utils/mmmu_mcq_utils.py, after
    eval/eval_utils.py of github.com/MMMU-Benchmark/MMMU.
    """
    if not answer:
        return None
    for mark in _OUTER_MARKS:
        answer = answer.strip(mark)
    text, letters = f" {answer} ", string.ascii_uppercase[: len(options)]
    for forms, by in _STAGES:
        found = [(form, letter) for form in forms for letter in letters if form.format(letter) in text]
        if found:
            place = by or found[0][0]
            return max((letter for _, letter in found), key=lambda letter: text.rfind(place.format(letter)))
    if len(text.split()) <= _WORDS_OF_A_LETTER:
        return None
    lower = text.lower()
    places = {
        letter: lower.rfind(option.strip().lower())
        for letter, option in zip(letters, options, strict=False)
        if option.strip().lower() in lower
    }
    return max(places, key=places.__getitem__, default=None)


def _last_match(pattern: str, answer: str) -> str | None:
    found = re.findall(pattern, answer)
    return found[-1] if found else None


def _bare_boxed_or_dotted(answer: str) -> str | None:
    """Source: the letter rule of VideoZoomer's scorer, which takes any of the three that is right; here the first
    counts."""
    text = answer.strip()
    if len(text) == 1:
        return text
    return _last_match(r"\\boxed\{([A-Z])\}", text) or _last_match(r"([A-Z])\.", text)


EXACT = letter_extractor(
    lambda answer, options: answer if answer in set(string.ascii_uppercase[: len(options)]) else None,
    "the letter in upper case and nothing else",
)
VIDEO_ZOOMER = letter_extractor(
    lambda answer, options: _bare_boxed_or_dotted(answer),
    "the letter alone, else that in the last \\boxed{}, else the last letter before a period",
)
FIRST_OF_FOUR = letter_extractor(
    lambda answer, options: first_letter(answer),
    "the first character from A to D, also within a word, after phrases such as `The answer is` are cut out",
)
