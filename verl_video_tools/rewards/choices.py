"""Grade a multiple-choice answer written in free form."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence

Options = Sequence[str] | Mapping[str, str]

# Words after which a choice is stated: "The answer is B", "Answer: B", "I choose B", "Option B is correct".
_STATEMENT = re.compile(
    r"\b(?:(?:answer|option|choice)(?:\s*:|\s+(?:is|would\s+be|should\s+be|must\s+be)\b)|choose|pick|select|go\s+with)\s*:?"
    r"|\b(?:option|choice)(?=\s+\(?[A-Z]\)?\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b)",
    re.IGNORECASE,
)
# A letter and nothing else: B  b  (B)  [B]  B.  B)  "option B".
_ALONE = re.compile(r"(?:option\s+|choice\s+)?[(\[]?\s*([A-Z])\s*[)\]]?\s*[.:,;!]*", re.IGNORECASE)
# A letter set apart from the text after it: "(B) text", "B. text", "B) text", "B: text", "B - text"; not "U.S.".
_MARKED = re.compile(
    r"(?:option\s+)?(?:[(\[]\s*([A-Z])\s*[)\]][.:]?|([A-Z])\s*[.):](?!\w(?:\W|$))|([A-Z])\s+[-\u2013\u2014](?=\s))\s*",
    re.IGNORECASE,
)
# After a statement a capital needs no mark: "The answer is B because ...".
_CAPITAL = re.compile(r"(?:(?i:option|choice)\s+)?([A-Z])(?![\w'\u2019])\s*")
# What takes a first letter back: "or C", ", C", "/ C" right after it, or a further marked letter: "; C. text".
_ANOTHER_NEXT = re.compile(r"(?:(?:\bor\b|\band\b|[/,;&+])\s*[(\[]?|[(\[])\s*([A-Z])\b(?!['\u2019])")
_ANOTHER_MARKED = re.compile(r"(?:\bor\b|\band\b|[,;\n])\s*(?:[(\[]\s*([A-Z])\s*[)\]]|([A-Z])[.):](?=\s))")
_MARKUP = re.compile(r"\\boxed\s*\{([^{}]*)\}|\\text\s*\{([^{}]*)\}|</?answer>|[*`$]+")
_QUOTES = "\"'\u201c\u201d\u2018\u2019"


def grade_multiple_choice(answer: str | None, truth: str, options: Options | None = None) -> bool:
    """Whether `answer` names the option `truth`, and no other.

    Understood are a letter in its usual forms (``B``, ``b``, ``(B)``, ``B.``, ``B. text``, ``The answer is B``) and,
    with `options`, the text of an option. An answer that names two options, one outside the menu, or none is wrong, and
    so is one whose letter and text name different options.

    Args:
        answer: what the model answered; None counts as wrong.
        truth: the letter of the right option, in any of the forms above.
        options: texts in the order of their letters (a leading ``A.`` is ignored), or a mapping from letter to text.

    Raises:
        ValueError: `truth` names no option.
    """
    menu = _menu(options)
    expected = _chosen_letter(truth, menu)
    if expected is None:
        raise ValueError(f"truth must be the letter of an option, got {truth!r}")
    if answer is None or (menu and expected not in menu):
        return False
    return _chosen_letter(answer, menu) == expected


def names_option(truth: str, options: Options | None = None) -> bool:
    """Whether `grade_multiple_choice` takes `truth`, and some answer could be right."""
    menu = _menu(options)
    letter = _chosen_letter(truth, menu)
    return letter is not None and (not menu or letter in menu)


def canonical_letter(truth: str, options: Options | None) -> str | None:
    """The upper-case letter of the option that a truth names: ``B`` for ``(B)``, ``B.``, ``b``, ``B. dog`` and ``dog``.

    A truth is a label and no sentence: it is a letter, a letter with text, or the text of one option.

    Args:
        truth: as a row has it.
        options: as for `grade_multiple_choice`; without them a text names nothing, and any letter is taken.

    Returns:
        None where `truth` names no option, several, or one letter and another option's text.
    """
    menu = _menu(options)
    letter = _read(_clean(truth), menu, stated=False)
    return letter if letter is not None and (not menu or letter in menu) else None


def _chosen_letter(answer: str, menu: Mapping[str, str]) -> str | None:
    """The one letter that an answer names, None if it names none or several."""
    answer = _clean(answer)
    if letter := _read(answer, menu, stated=False):
        return letter
    matches = list(_STATEMENT.finditer(answer))
    ends = [match.start() for match in matches[1:]] + [len(answer)]
    statements = [answer[match.end() : end].strip() for match, end in zip(matches, ends, strict=False)]
    letters = {letter for statement in statements if (letter := _read(statement, menu, stated=True))}
    return letters.pop() if len(letters) == 1 else None


def _read(text: str, menu: Mapping[str, str], *, stated: bool) -> str | None:
    """The letter that `text` starts with or whose option it spells out."""
    if alone := _ALONE.fullmatch(text):
        return alone[1].upper()
    if letter := _letter_of_text(text, menu):
        return letter
    if label := _MARKED.match(text) or (_CAPITAL.match(text) if stated else None):
        letter, rest = _first_group(label), text[label.end() :]
        named = _letter_of_text(rest, menu)
        if named is not None:
            return letter if named == letter else None
        return None if _takes_back(rest, letter) else letter
    head, _, rest = text.partition(" ")  # "B text": only if text and option agree
    return head.upper() if head and _letter_of_text(rest, menu) == head.upper() else None


def _takes_back(rest: str, letter: str) -> bool:
    """Whether what follows a letter names another one as well."""
    others = [alone for alone in [_ALONE.fullmatch(rest), _ANOTHER_NEXT.match(rest)] if alone]
    return any(_first_group(match) != letter for match in [*others, *_ANOTHER_MARKED.finditer(rest)])


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).upper()


def _letter_of_text(text: str, menu: Mapping[str, str]) -> str | None:
    plain = plain_text(text)
    letters = [letter for letter, option in menu.items() if plain and plain_text(option) == plain]
    return letters[0] if len(letters) == 1 else None


def _menu(options: Options | None) -> dict[str, str]:
    """Option texts by upper-case letter, without the letter that a text may repeat."""
    if options is None:
        return {}
    if isinstance(options, Mapping):
        pairs = [(str(letter).strip().upper(), str(text)) for letter, text in options.items()]
    else:
        pairs = list(zip(string.ascii_uppercase, map(str, options), strict=False))
    return {letter: _without_label(_clean(text), letter) for letter, text in pairs}


def _without_label(text: str, letter: str) -> str:
    return re.sub(rf"^\(?{re.escape(letter)}\s*[.):]\s*", "", text, flags=re.IGNORECASE)


def _clean(text: str) -> str:
    """Without markup, outer quotes, runs of white space and odd forms of letters."""
    text = unicodedata.normalize("NFKC", text)
    text = _MARKUP.sub(lambda match: match[1] or match[2] or "", text)
    # Single spaces and line breaks keep every pattern above linear on a policy that writes nothing but white space.
    text = re.sub(r"(?: ?\n ?)+", "\n", re.sub(r"[^\S\n]+", " ", text))
    return text.strip().strip(_QUOTES).strip()


def plain_text(text: str) -> str:
    """For comparing short texts: case, spacing and outer punctuation do not count."""
    return " ".join(text.casefold().split()).strip(" .,;:!?" + _QUOTES)
