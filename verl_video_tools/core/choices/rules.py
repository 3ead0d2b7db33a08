"""Second stage: ranked rules, each of which reads the option that a cleaned answer states in one way.

What stands in a box, a tag or a field of JSON decides; else the whole answer as a letter, a text or both; else its
clauses. A clause claims options with a strength: it calls its choice final, states it, says that it fits, merely gives
a letter or a text, or leaves it open; where a letter is just spoken of, as in ``rules out A``, it claims nothing. The
strongest claims decide, and they must agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from verl_video_tools.core.choices import words
from verl_video_tools.core.choices.claims import (
    Claim,
    Strength,
    claims_of,
    contradicts_its_letter,
    foreign_words,
)
from verl_video_tools.core.choices.clauses import Choice, Clause, clauses_of
from verl_video_tools.core.choices.options import Menu
from verl_video_tools.core.choices.text import Cleaned, cleaned


def read_choice(answer: str, menu: Menu) -> str | None:
    """The upper-case letter of the one option that an answer states; None if it states none or several.

    The letter may be off the menu. Takes time in proportion to the length of the answer.
    """
    parts = cleaned(answer)
    return _set_apart(parts, menu) if parts.given else _in_words(parts.before, menu)


# ---------------------------------------------------------------------------------------------------- what is set apart


def _set_apart(parts: Cleaned, menu: Menu) -> str | None:
    """Every box, tag and field names the same option, and the words around them no other."""
    letters = {_in_words(part, menu) for part in parts.given}
    letter = letters.pop()
    if letters or letter is None:
        return None
    after = claims_of(clauses_of(parts.after, menu))
    before = clauses_of(parts.before, menu)
    bare = [claim for claim in claims_of(before) if not any(foreign_words(clause) for clause in before)]
    named = [named for claim in (*after, *bare) for named in claim.letters]
    return letter if all(other == letter for other in named) else None


# -------------------------------------------------------------------------------------------------------- whole answers


def _in_words(text: str, menu: Menu) -> str | None:
    """The first rule that finds anything decides."""
    for rule in (_letter_alone, _text_alone, _letter_and_text):
        if letter := rule(text, menu):
            return letter
    return _by_claims(clauses_of(text, menu))


_ALONE = re.compile(r"(?:option |choice |letter )?\(?([A-Z])\)?[ .:,;!)\]]*", re.IGNORECASE)
_BEFORE_TEXT = re.compile(r"(?:option |choice )?\(?([A-Z])\)?[ .:,;)\n→=\u2014\u2013-]+", re.IGNORECASE)


def _letter_alone(text: str, menu: Menu) -> str | None:
    """``B``, ``(b)``, ``B.``, ``option B``."""
    found = _ALONE.fullmatch(text)
    if found is None or (text in ("I", "i") and "I" not in menu.letters):  # the beginning of a sentence
        return None
    return found[1].upper()


def _text_alone(text: str, menu: Menu) -> str | None:
    """The text of an option, whatever letters and stops it holds."""
    return menu.letter_of(text)


def _letter_and_text(text: str, menu: Menu) -> str | None:
    """``B. text`` with the very text of that option."""
    found = _BEFORE_TEXT.match(text)
    return found[1].upper() if found and menu.letter_of(text[found.end() :]) == found[1].upper() else None


# --------------------------------------------------------------------------------------------------------------- claims


def _by_claims(clauses: Sequence[Clause]) -> str | None:
    claims = list(claims_of(clauses))
    if not claims:
        return _only_text(clauses)
    if contradicts_its_letter(clauses, claims):
        return None
    corrections = [number for number, clause in enumerate(clauses) if clause.is_revision]
    if corrections and any(claim.place >= corrections[-1] and claim.strength >= Strength.STATED for claim in claims):
        claims = [claim for claim in claims if claim.place >= corrections[-1]]
    denied: set[int] = set()
    if not corrections:
        places_of_letters = [claim.place for claim in claims if claim.strength == Strength.LETTER]
        denied = {near for place in places_of_letters if _is_denied(clauses, place) for near in (place, place + 1)}
    if opening := _opening(clauses, claims, denied):
        claims[0] = opening
    highest = max(claim.strength for claim in claims)
    if highest == Strength.OPEN:
        return None
    if highest == Strength.TEXT and not _is_only_about(clauses):
        return None
    deciding = [claim for claim in claims if claim.strength == highest]
    first = deciding[0].place
    named = set().union(*(claim.letters for claim in deciding))
    # What is left open or stated after the first deciding claim counts against it.
    for claim in claims:
        if claim.place > first and claim.strength in (Strength.OPEN, Strength.STATED, Strength.FINAL):
            named |= claim.letters
    given = [claim for claim in claims if claim.strength == Strength.LETTER]
    letters = {letter for claim in given for letter in claim.letters}
    # Several letters with something to say about each are an analysis of the options.
    if highest in (Strength.FITS, Strength.STATED):
        places = {claim.place for claim in claims if claim.strength != Strength.TEXT}
        bare = {letter for claim in given if _is_bare(clauses, claim.place, places) for letter in claim.letters}
        lone = {letter for claim in given if claim.place not in denied for letter in claim.letters}
        named |= lone if len(letters) == 1 else bare
    if highest == Strength.LETTER or opening:
        texts = (claim for claim in claims if claim.strength == Strength.TEXT and claim.place not in denied)
        named |= {letter for claim in texts for letter in claim.letters}
    return named.pop() if len(named) == 1 else None


def _opening(clauses: Sequence[Clause], claims: Sequence[Claim], denied: set[int]) -> Claim | None:
    """A letter at the very beginning, as a statement: what follows explains it, unless it gives letters too.

    Denied ones do not count after a line with nothing but the letter and its text; else all may be an analysis of the
    options, which ends in a statement or was cut off.
    """
    first = claims[0]
    if first.place or first.strength != Strength.LETTER or len(first.letters) > 1 or first.place in denied:
        return None
    others = [claim for claim in claims[1:] if claim.strength != Strength.TEXT and claim.letters != first.letters]
    if any(claim.strength in (Strength.LETTER, Strength.OPEN) for claim in others):
        is_analysis = any(clause.words for clause in _rest_of_line(clauses, 0))
        if is_analysis or any(claim.place not in denied for claim in others):
            return None
    return Claim(first.letters, Strength.STATED, first.place)


_MAX_WORDS = 15


def _only_text(clauses: Sequence[Clause]) -> str | None:
    """A short sentence about the video that ends, or begins, in the text of one option: ``The object is a dog``."""
    named = [choice for clause in clauses for choice in clause.choices]
    spoken = [word for clause in clauses for word in clause.words]
    if len(named) != 1 or not named[0].text or len(spoken) > _MAX_WORDS:
        return None
    if any(words.denies(word) or words.doubts(word) for word in spoken):
        return None
    (clause,) = (clause for clause in clauses if clause.choices)
    if clause.is_question or clause.is_reason or clause.is_alternative:
        return None
    place = clause.items.index(named[0])
    if all(isinstance(item, str) and words.is_frame(item) for item in clause.items[place + 1 :]):
        before = clause.items[place - 1] if place else ""
        is_label = before in words.LABELLED_THINGS and words.is_number(named[0].text) and named[0].text.isalnum()
        return None if is_label else named[0].letters[0]
    if _counts(clause, place):
        return named[0].letters[0]
    can_begin = named[0].text.isdecimal() or " " in named[0].text  # not "no" and the like
    return named[0].letters[0] if place == 0 and can_begin else None


def _counts(clause: Clause, place: int) -> bool:
    """Whether the text at `place` is the one number of a count: ``There are four cups on the table``."""
    item, before, after = clause.items[place], clause.items[:place], clause.items[place + 1 :]
    return (
        isinstance(item, Choice)
        and words.is_number(item.text)
        and not any(isinstance(word, str) and words.is_number(word) for word in (*before, *after))
        and all(isinstance(word, str) and (words.is_frame(word) or word in words.COUNTING) for word in before)
        and not words.COUNTING.isdisjoint(word for word in before if isinstance(word, str))
    )


def _is_only_about(clauses: Sequence[Clause]) -> bool:
    """Whether no clause speaks of another option's text or refuses to answer."""
    texts = {choice.letters for clause in clauses for choice in clause.choices if choice.text}
    refuses = any(
        any(words.denies(word) for word in clause.words) and words.KNOWING.intersection(clause.words)
        for clause in clauses
    )
    return len(texts) <= 1 and not refuses


def _is_bare(clauses: Sequence[Clause], place: int, claiming: set[int]) -> bool:
    """Whether a line or the next claim follows a clause at once."""
    return place + 1 == len(clauses) or clauses[place + 1].starts_line or place + 1 in claiming


def _rest_of_line(clauses: Sequence[Clause], place: int) -> list[Clause]:
    """What follows a clause, a few clauses at most."""
    return list(takewhile(lambda clause: not clause.starts_line, clauses[place + 1 : place + 5]))


def _is_denied(clauses: Sequence[Clause], place: int) -> bool:
    """Whether a line begins with a letter and says right after it, or after its text, that it does not fit: ``A. is
    wrong``, ``A. a dog: not shown``."""
    label = clauses[place]
    if not label.starts_line or not isinstance(label.items[-1], Choice) or label.items[:-1] not in ([], ["option"]):
        return False
    line = _rest_of_line(clauses, place)
    letters = {choice.letters for clause in line for choice in clause.choices}
    if letters - {label.items[-1].letters} or any(words.doubts(word) for clause in line for word in clause.words):
        return False
    verdict = next((clause for clause in line if clause.words), None)
    if verdict is None or verdict.is_question or not words.rules_out(verdict.words):
        return False
    has_text = verdict is not line[0] or isinstance(verdict.items[0], Choice)
    # Else what is denied may be the option's text: "A. He does not run".
    return has_text or all(words.is_frame(word) or words.denies(word) for word in verdict.words)
