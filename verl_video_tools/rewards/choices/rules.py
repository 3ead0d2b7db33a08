"""Second stage: ranked rules, each of which reads the option that a cleaned answer states in one way.

What stands in a box, a tag or a field of JSON decides; else the whole answer as a letter, a text or both; else its
clauses. A clause claims options with a strength: it calls its choice final, states it, merely gives a letter or a text,
or leaves it open. The strongest claims decide, and they must agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from verl_video_tools.rewards.choices import words
from verl_video_tools.rewards.choices.clauses import Choice, Clause, clauses_of
from verl_video_tools.rewards.choices.options import Menu
from verl_video_tools.rewards.choices.text import Cleaned, cleaned


class Strength(IntEnum):
    """How a clause names options; the highest that an answer has decides."""

    OPEN = 0
    """``perhaps B``: decides nothing, but takes a choice before it back if it differs."""
    TEXT = 1
    """The text of an option, also as ``It is a dog``."""
    LETTER = 2
    """``B``, ``so B``, ``option B``."""
    STATED = 3
    """``The answer is B``, ``B is correct``, ``I choose B``."""
    FINAL = 4
    """``My final answer is B``."""


@dataclass(frozen=True)
class Claim:
    """Options that a clause names, and where: `place` counts the clauses."""

    letters: frozenset[str]
    strength: Strength
    place: int


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
    after = _claims(clauses_of(parts.after, menu))
    before = clauses_of(parts.before, menu)
    bare = [claim for claim in _claims(before) if not any(_foreign(clause) for clause in before)]
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
    claims = list(_claims(clauses))
    if not claims:
        return _only_text(clauses)
    if _contradicts_its_letter(clauses, claims):
        return None
    corrections = [number for number, clause in enumerate(clauses) if clause.is_revision]
    if corrections and any(claim.place >= corrections[-1] and claim.strength >= Strength.STATED for claim in claims):
        claims = [claim for claim in claims if claim.place >= corrections[-1]]
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
    if highest == Strength.STATED:  # several letters with something to say about each are an analysis of the options
        places = {claim.place for claim in claims if claim.strength != Strength.TEXT}
        bare = {letter for claim in given if _is_bare(clauses, claim.place, places) for letter in claim.letters}
        named |= letters if len(letters) == 1 else bare
    if highest == Strength.LETTER:
        named |= {letter for claim in claims if claim.strength == Strength.TEXT for letter in claim.letters}
    return named.pop() if len(named) == 1 else None


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
        return None if before in words.LABELLED_THINGS else named[0].letters[0]
    can_begin = named[0].text.isdecimal() or " " in named[0].text  # not "no" and the like
    return named[0].letters[0] if place == 0 and can_begin else None


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


def _claims(clauses: Sequence[Clause]) -> Iterator[Claim]:
    awaits_choice = False
    for place, clause in enumerate(clauses):
        if clause.is_question:
            continue
        letters = frozenset(letter for choice in _counted(clause) for letter in choice.letters)
        strength = _strength(clause)
        if letters and strength is not None:
            is_answer = awaits_choice and strength in (Strength.LETTER, Strength.TEXT)
            verdict = _verdict_on_line(clauses, place)
            if verdict is not False:
                yield Claim(letters, Strength.STATED if is_answer or verdict else strength, place)
        ends_in_choice = place > 0 and clauses[place - 1].items and isinstance(clauses[place - 1].items[-1], Choice)
        if clause.is_alternative and not letters and clause.words and ends_in_choice:
            yield Claim(frozenset({"something else"}), Strength.OPEN, place)
        awaits_choice = not letters and _asks_for_choice(clause)
    yield from _further_labels(clauses)


def _further_labels(clauses: Sequence[Clause]) -> Iterator[Claim]:
    """The letters of a list that runs on within a line: ``A. a dog B. a cat``, ``(A) a dog (B) a cat``."""
    if not clauses or len(clauses[0].items) != 1 or not clauses[0].choices or clauses[0].choices[0].text:
        return
    is_dressed = clauses[0].choices[0].is_dressed
    for place, clause in enumerate(clauses[1:], start=1):
        for number, item in enumerate(clause.items):
            before = clause.items[number - 1] if number else None
            is_last = number + 1 == len(clause.items)
            is_label = is_dressed or (is_last and place + 1 < len(clauses))
            if (
                not isinstance(item, Choice)
                or item.text
                or item.is_dressed != is_dressed
                or not isinstance(before, str)
            ):
                continue
            if is_label and not (
                clause.is_reason or before in words.HEADS | words.NAMED or before in words.LABELLED_THINGS
            ):
                yield Claim(frozenset(item.letters), Strength.OPEN, place)


def _counted(clause: Clause) -> list[Choice]:
    """Its choices; beside a letter, "right" and "no" are words, also where options read so."""
    choices = clause.choices
    is_sentence = any(word in words.COPULAS for word in clause.words)
    if is_sentence and any(not choice.text for choice in choices):
        return [choice for choice in choices if not choice.text or not words.is_frame(choice.text)]
    return choices


def _plain_words(clause: Clause) -> list[str]:
    counted = _counted(clause)
    return [
        item if isinstance(item, str) else item.text
        for item in clause.items
        if isinstance(item, str) or (item not in counted)
    ]


def _foreign(clause: Clause) -> list[str]:
    """Words that say more than that a choice is made."""
    return [word for word in _plain_words(clause) if not words.is_frame(word) and word not in words.REVISIONS]


def _strength(clause: Clause) -> Strength | None:
    """How the clause names its choices; None if it does not, but speaks about something else or denies them."""
    spoken = _plain_words(clause)
    if not clause.choices or any(words.denies(word) for word in spoken):
        return None
    foreign = _foreign(clause)
    if clause.is_alternative or any(words.doubts(word) for word in spoken):
        return Strength.OPEN
    if clause.is_reason:
        return None if foreign else Strength.OPEN
    is_final = any(words.is_final(word) for word in spoken)
    if not foreign:
        if not any(words.is_head(word) for word in spoken):
            return Strength.LETTER if any(not choice.text for choice in clause.choices) else Strength.TEXT
        if all(choice.text for choice in clause.choices) and not words.HEADS - words.COPULAS & set(spoken):
            return Strength.TEXT
        return Strength.FINAL if is_final else Strength.STATED
    if _states_at_end(clause) or _states_at_start(clause):
        return Strength.FINAL if is_final else Strength.STATED
    return Strength.OPEN if len(foreign) == 1 and _is_aside(clause) else None


def _is_aside(clause: Clause) -> bool:
    """A choice beside a word that we do not know, and no verb of ours: ``B too``, ``plus B``; not ``vitamin B``."""
    first, last = clause.items[0], clause.items[-1]
    if any(word in words.COPULAS or word in words.LABELLED_THINGS for word in clause.words):
        return False
    return any(isinstance(item, Choice) and not item.text for item in (first, last))


def _states_at_end(clause: Clause) -> bool:
    """``From ... I can tell that the answer is B``, ``the option that describes the scene is B``."""
    items = list(clause.items)
    while items and isinstance(items[-1], str) and not items[-1].isascii() and words.is_frame(items[-1]):
        items.pop()  # what ends a sentence of Japanese or Korean: "B 입니다"
    if not items or not isinstance(items[-1], Choice):
        return False
    before = [item for item in items[:-1] if isinstance(item, str)]
    tail: list[str] = []
    for word in reversed(before):
        if words.leads_to_choice(word):
            return True
        if not words.is_frame(word):
            break
        tail.append(word)
    has_copula = any(word in words.COPULAS for word in tail)
    return (has_copula and any(word in words.NAMED for word in before)) or any(word in words.DECISIONS for word in tail)


def _states_at_start(clause: Clause) -> bool:
    """``B is correct in my view``, ``Option A matches what is shown``."""
    places = [number for number, item in enumerate(clause.items) if isinstance(item, Choice)]
    if not all(words.is_frame(item) for item in clause.items[: places[0]] if isinstance(item, str)):
        return False
    for item in clause.items[places[-1] + 1 :]:
        if not isinstance(item, str) or not words.is_frame(item):
            return False
        if item in words.SUBJECTS:
            return True
    return False


def _asks_for_choice(clause: Clause) -> bool:
    """A heading or a beginning after which the choice comes: ``Answer:``, ``The correct option is``."""
    spoken = _plain_words(clause)
    return (
        bool(spoken)
        and not _foreign(clause)
        and not any(words.denies(word) or words.doubts(word) for word in spoken)
        and any(word in words.NAMED or (words.is_head(word) and word not in words.FRAME) for word in spoken)
    )


def _verdict_on_line(clauses: Sequence[Clause], place: int) -> bool | None:
    """What an analysis says at the end of an option's line: ``A: the circle moves, wrong.``"""
    if len(clauses[place].items) > 2:
        return None
    for clause in clauses[place + 1 : place + 4]:
        if clause.choices or clause.starts_line:
            return None
        spoken = set(clause.words)
        if spoken and spoken <= words.WRONG:
            return False
        if spoken and spoken <= words.RIGHT:
            return True
    return None


def _contradicts_its_letter(clauses: Sequence[Clause], claims: Sequence[Claim]) -> bool:
    """Whether right after a letter comes the text of another option."""
    for claim in claims:
        following = clauses[claim.place + 1] if claim.place + 1 < len(clauses) else None
        if following is None or claim.strength == Strength.TEXT or _foreign(following) or following.is_reason:
            continue
        texts = {letter for choice in following.choices if choice.text for letter in choice.letters}
        if texts and all(choice.text for choice in following.choices) and not texts <= claim.letters:
            return True
    return False
