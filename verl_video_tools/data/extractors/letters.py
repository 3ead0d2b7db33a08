"""Letters by their form and place in an answer."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

from verl_video_tools.data.extractors.choices import letter_extractor, letters_of

_FOUR = "ABCD"
_OUTER_MARKS = ",.!?;:'\""
_FORMS = ("({})", "{}.", "{}:", "{})", "{} ", "{}")
"""From the one that counts most to the one that counts least; the last is a letter anywhere."""
_PHRASES = (
    *("the answer is", "answer is", "the correct answer is", "correct answer is", "the best answer is"),
    *("best answer is", "the correct option is", "correct option is", "the best option is", "best option is"),
    *("the choice is", "choice is", "the correct choice is", "correct choice is", "i choose", "i select", "i pick"),
    *("my answer is", "my choice is", "옵션", "정답은", "답은", "답:", "答案是", "答案为", "选", "答えは"),
)
_LEADS = ("The best answer is", "The correct answer is", "The answer is", "The answer")


def ranked_letter(answer: str, letters: Sequence[str]) -> str | None:
    """A letter at the beginning, else at the end, after a phrase such as ``the answer is``, in brackets, before a
    period, a colon, a bracket, a space, or anywhere; of several of one form the last.

    Source: `extract_mcq_answer` of lmms_eval/tasks/_task_utils/mcq_extract.py.
    """
    text = answer.strip()
    for mark in _OUTER_MARKS:
        text = text.strip(mark)
    text = text.strip()
    for letter in letters:
        if text.startswith(letter) and not text[1:2].isalpha():
            return letter
    for letter in letters:
        if text.endswith(letter) and not text[-2:-1].isalpha():
            return letter
    padded = f" {text} "
    if (after_phrase := _last(_places_after_phrases(padded, letters))) is not None:
        return after_phrase
    for form in _FORMS:
        if (found := _last((padded.rfind(form.format(letter)), letter) for letter in letters)) is not None:
            return found
    return None


def _places_after_phrases(text: str, letters: Sequence[str]) -> Iterable[tuple[int, str]]:
    """Where each letter comes first after the first use of each phrase."""
    lower = text.lower()
    for phrase in _PHRASES:
        if (start := lower.find(phrase)) != -1:
            yield from ((text.find(letter, start + len(phrase)), letter) for letter in letters)


def _last(places: Iterable[tuple[int, str]]) -> str | None:
    """The letter furthest to the right; places of -1 are none."""
    place, letter = max(places, default=(-1, ""))
    return letter if place != -1 else None


def first_letter(answer: str, letters: str, leads: Sequence[str]) -> str | None:
    """The first of the letters anywhere, also within a word, once phrases that lead to an answer are cut out.

    Source: `extract_characters_regex` of lmms_eval/tasks/videomme/utils.py until April 2026, and
    `parse_multi_choice_response` of lmms_eval/tasks/longvideobench/utils.py.
    """
    text = answer.strip()
    for lead in leads:
        text = text.replace(lead, "")
    found = re.search(f"[{letters}]", text)
    return found[0] if found else None


def letter_before_bracket(answer: str) -> str | None:
    """What stands before the first closing bracket, else the whole answer, if that is one character.

    Source: `check_ans` of evaluation/multiple_choice_evaluation/choice_bench.py in github.com/JUNJIE99/MLVU, and
    lmms_eval/tasks/mlvu/utils.py until April 2026.
    """
    text = answer.strip()
    place = text.find(")")
    found = text if place == -1 else text[max(place - 1, 0) : place]
    return found if len(found) == 1 else None


def _matched(pattern: str, answer: str, place: int) -> str | None:
    found = re.findall(pattern, answer)
    return found[place] if found else None


def _bare_boxed_or_dotted(answer: str) -> str | None:
    """Source: the letter rule of VideoZoomer's scorer, which takes any of the three that is right; here the first
    counts."""
    text = answer.strip()
    if len(text) == 1:
        return text
    return _matched(r"\\boxed\{([A-Z])\}", text, -1) or _matched(r"([A-Z])\.", text, -1)


def _first_of_first_word(answer: str) -> str | None:
    """Source: `polish_answer` of lvbench/utils/answer_util.py in github.com/THUDM/LVBench."""
    text = answer.strip().split(")")[0].strip()
    if "(" in text:
        text = text.split("(")[1].strip()
    return text[:1].strip() or None


RANKED_OF_FOUR = letter_extractor(
    lambda answer, options: ranked_letter(answer, _FOUR),
    "a letter from A to D, by the rank of its form: at the beginning, at the end, after `the answer is`, (A), A., ...",
)
EXACT = letter_extractor(
    lambda answer, options: answer if answer in set(letters_of(options)) else None,
    "the letter in upper case and nothing else",
)
VIDEO_ZOOMER = letter_extractor(
    lambda answer, options: _bare_boxed_or_dotted(answer),
    "the letter alone, else that in the last \\boxed{}, else the last letter before a period",
)
CG_BENCH = letter_extractor(
    lambda answer, options: ranked_letter(answer, string.ascii_uppercase[:14]),
    "as lmms-eval/videomme, letters from A to N",
)
FIRST_OF_FOUR = letter_extractor(
    lambda answer, options: first_letter(answer, _FOUR, _LEADS),
    "the first character from A to D, also within a word, after phrases such as `The answer is` are cut out",
)
LONG_VIDEO_BENCH = letter_extractor(
    lambda answer, options: first_letter(
        answer,
        "ABCDE",
        (*_LEADS, "The best option is", "The correct option is", "Best answer:", "Best option:"),
    ),
    "the first character from A to E, as lmms-eval-2025/videomme; without one a random option",
    draws=True,
)
BEFORE_BRACKET = letter_extractor(
    lambda answer, options: letter_before_bracket(answer),
    "the character before the first closing bracket; without one the answer must be the letter and no more",
)
LV_BENCH = letter_extractor(
    lambda answer, options: _first_of_first_word(answer),
    "the first character before the first closing bracket, of what stands in brackets if any opens",
)
TEMPORAL_BENCH = letter_extractor(
    lambda answer, options: _matched("^[A-Z]", answer.upper(), 0),
    "the first character, in either case",
)
LSD_BENCH = letter_extractor(
    lambda answer, options: _matched(r"(?<![a-zA-Z])[ABCD](?![a-zA-Z])", answer, -1),
    "the last letter from A to D that has no letter beside it",
)
PERCEPTION_TEST = letter_extractor(
    lambda answer, options: _matched(r"\b[A-D]\b", answer, 0),
    "the first word that is a letter from A to D",
)
