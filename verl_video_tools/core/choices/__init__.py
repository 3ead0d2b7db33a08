"""Grade a multiple-choice answer written in free form.

An answer is read in two stages. First it is cleaned (`text`): markup, reasoning and odd forms of letters go, and what
the model set apart as its answer, in a box, a tag or a field of JSON, is found. Then ranked rules (`rules`) look for
the one option that the words state; `clauses` cuts the text into the clauses that they look at, `words` holds the words
that may stand beside a choice.
"""

from __future__ import annotations

import string
from functools import lru_cache

from verl_video_tools.core.choices.options import Menu, Options, menu_of, plain_text
from verl_video_tools.core.choices.rules import read_choice

__all__ = ["Options", "canonical_letter", "chosen_option", "grade_multiple_choice", "plain_text"]


def grade_multiple_choice(answer: str | None, truth: str, options: Options | None = None) -> bool:
    """Whether `answer` names the option `truth`, and no other.

    Read are a letter in its usual forms (``B``, ``b``, ``(B)``, ``B.``), with text (``B. text``), in a statement (``The
    answer is B``, ``B is correct``), set apart (``\\boxed{B}``, ``<answer>B</answer>``, ``{"answer": "B"}``), before an
    explanation or after reasoning, also in Chinese, Korean, Japanese and the languages of `headings`; and, with
    `options`, the text of an option in a letter's place. An answer that names two options, one outside the menu, or
    none is wrong, and so is one whose letter and text name different options.

    Args:
        answer: what the model answered; None counts as wrong.
        truth: the right option, in any form that `canonical_letter` takes.
        options: texts in the order of their letters (a leading ``A.`` is ignored), or a mapping from letter to text.

    Raises:
        ValueError: `truth` names no option.
    """
    menu = menu_of(options)
    expected = _truth_letter(truth, menu)
    if expected is None:
        raise ValueError(f"truth must be the letter of an option, got {truth!r}")
    if answer is None or not menu.has(expected):
        return False
    return _read(answer, menu) == expected


def chosen_option(answer: str, options: Options | None = None) -> str | None:
    """The letter of the option that `answer` names, right or wrong, as `grade_multiple_choice` reads it; None where it
    names none, or several."""
    menu = menu_of(options)
    letter = _read(answer, menu)
    return letter if letter is not None and menu.has(letter) else None


def canonical_letter(truth: str, options: Options | None) -> str | None:
    """The upper-case letter of the option that a truth names: ``B`` for ``(B)``, ``B.``, ``b``, ``B. dog`` and ``dog``.

    Args:
        truth: as a row has it.
        options: as for `grade_multiple_choice`; without them a text names nothing, and any letter is taken.

    Returns:
        None where `truth` names no option, several, or one letter and another option's text.
    """
    menu = menu_of(options)
    letter = _truth_letter(truth, menu)
    return letter if letter is not None and menu.has(letter) else None


def _truth_letter(truth: str, menu: Menu) -> str | None:
    """As `_read`, but a letter alone is one also where it would be a word in an answer: ``I``."""
    alone = truth.strip().upper()
    return alone if len(alone) == 1 and alone in string.ascii_uppercase else _read(truth, menu)


@lru_cache(maxsize=64)
def _read(text: str, menu: Menu) -> str | None:
    """As `read_choice`; a truth and an answer are asked for several times in a row."""
    return read_choice(text, menu)
