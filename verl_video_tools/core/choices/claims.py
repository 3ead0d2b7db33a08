"""What a clause of an answer claims: which option, and how strongly.

A clause calls its choice final, states it, says that it fits, merely gives a letter or a text, or leaves it open; where
a letter is just spoken of, as in ``rules out A``, it claims nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from verl_video_tools.core.choices import words
from verl_video_tools.core.choices.clauses import Choice, Clause


class Strength(IntEnum):
    """How a clause names options; the highest that an answer has decides."""

    OPEN = 0
    """``perhaps B``: decides nothing, but takes a choice before it back if it differs."""
    TEXT = 1
    """The text of an option, also as ``It is a dog``."""
    LETTER = 2
    """``B``, ``so B``, ``option B``."""
    FITS = 3
    """``B describes what the child does``: may only say what an option is about, where another is stated."""
    STATED = 4
    """``The answer is B``, ``B is correct``, ``I choose B``."""
    FINAL = 5
    """``My final answer is B``."""


@dataclass(frozen=True)
class Claim:
    """Options that a clause names, and where: `place` counts the clauses."""

    letters: frozenset[str]
    strength: Strength
    place: int


def claims_of(clauses: Sequence[Clause]) -> Iterator[Claim]:
    awaits_choice = False
    is_discussion = False  # whether the sentence has spoken of an option without stating it
    is_answered = False  # whether an option was stated
    is_hypothetical = False  # whether the sentence has an "if"
    prose = {clause.sentence for clause in clauses if foreign_words(clause)}
    for place, clause in enumerate(clauses):
        if starts_sentence(clauses, place):
            is_hypothetical = False
        if starts_sentence(clauses, place) or clause.is_conclusion:
            is_discussion = False
        is_hypothetical |= "if" in clause.words
        if clause.is_question:
            continue
        letters = frozenset(letter for choice in _counted(clause) for letter in choice.letters)
        strength = _strength(clause)
        context = _Context(clause.sentence in prose, is_discussion, is_answered, is_hypothetical)
        if strength is not None and _is_mention(clauses, place, strength, context):
            strength = None
        is_discussion |= strength is None and clause.names_letter
        if letters and strength is not None:
            is_answer = awaits_choice and strength in (Strength.LETTER, Strength.TEXT)
            verdict = _verdict_on_line(clauses, place)
            if verdict is not False:
                strength = Strength.STATED if is_answer or verdict else strength
                is_answered |= strength >= Strength.STATED or (place == 0 and ends_sentence(clauses, place))
                yield Claim(letters, strength, place)
        ends_in_choice = place > 0 and clauses[place - 1].items and isinstance(clauses[place - 1].items[-1], Choice)
        if clause.is_alternative and not letters and clause.words and ends_in_choice:
            yield Claim(frozenset({"something else"}), Strength.OPEN, place)
        awaits_choice = not letters and _asks_for_choice(clause)
    yield from _further_labels(clauses)


class _Context(NamedTuple):
    """What stands before a clause and around it."""

    is_prose: bool
    """Its sentence says more than that a choice is made."""
    is_discussion: bool
    """An earlier clause of its sentence speaks of an option without stating it."""
    is_answered: bool
    """An earlier clause states an option."""
    is_hypothetical: bool
    """Its sentence has an "if"."""


def _is_mention(clauses: Sequence[Clause], place: int, strength: Strength, context: _Context) -> bool:
    """Whether a choice is just spoken of: ``in A``, ``which rules out A (1908), B (1915) and C (1927)``."""
    clause = clauses[place]
    starts, ends = starts_sentence(clauses, place), ends_sentence(clauses, place)
    if clause.is_reason and starts:  # "Although A might seem right, ..."
        return True
    if context.is_hypothetical and "would" in clause.words and not words.FIRST_PERSON.intersection(clause.words):
        return True
    if strength == Strength.TEXT:
        return context.is_prose and clause.sentence > clauses[0].sentence and not clause.is_conclusion
    if clause.is_alternative:  # "nobody waits for the tram (B) or the bus (A)"
        return context.is_discussion
    if strength > Strength.LETTER or (starts and ends):
        return False
    if clause.is_label and len(clause.choices[0].letters) > 1:  # "A and B start with the fold"
        return True
    number = next(number for number, item in enumerate(clause.items) if isinstance(item, Choice))
    before = [item for item in clause.items[:number] if item not in ("the", "option", "choice", "options")]
    if (strength == Strength.LETTER or clause.is_reason) and before and {before[0], before[-1]} <= words.PREPOSITIONS:
        return True
    is_aside = context.is_prose and not (starts or ends or clause.is_conclusion)
    if strength == Strength.LETTER and is_aside and (clause.is_label or context.is_answered):
        return True
    return context.is_discussion and (not ends or number + 1 < len(clause.items))


_BEFORE_A_MENTION = words.HEADS | words.NAMED | words.PREPOSITIONS | words.LABELLED_THINGS


def _further_labels(clauses: Sequence[Clause]) -> Iterator[Claim]:
    """The letters of a list that runs on within a line: ``A. a dog B. a cat``, ``(A) a dog (B) a cat``."""
    if not clauses or len(clauses[0].items) != 1 or not clauses[0].choices or clauses[0].choices[0].text:
        return
    is_enclosed = clauses[0].choices[0].is_enclosed
    for place, clause in enumerate(clauses[1:], start=1):
        if any(words.denies(word) for word in clause.words):
            continue
        for number, item in enumerate(clause.items):
            before = clause.items[number - 1] if number else None
            is_last = number + 1 == len(clause.items)
            is_label = is_enclosed or (is_last and place + 1 < len(clauses))
            if (
                not isinstance(item, Choice)
                or item.text
                or item.is_enclosed != is_enclosed
                or not isinstance(before, str)
            ):
                continue
            if is_label and not (clause.is_reason or before in _BEFORE_A_MENTION):
                yield Claim(frozenset(item.letters), Strength.OPEN, place)


def _counted(clause: Clause) -> list[Choice]:
    """Its choices; beside a letter, "right" and "no" are words, also where options read so."""
    choices = clause.choices
    if clause.names_letter and any(word in words.COPULAS for word in clause.words):
        return [choice for choice in choices if not choice.text or not words.is_frame(choice.text)]
    return choices


def _plain_words(clause: Clause) -> list[str]:
    if not clause.names_letter:
        return clause.words
    counted = _counted(clause)
    return [
        item if isinstance(item, str) else item.text
        for item in clause.items
        if isinstance(item, str) or (item not in counted)
    ]


def foreign_words(clause: Clause) -> list[str]:
    """Words that say more than that a choice is made."""
    return [word for word in _plain_words(clause) if not words.is_frame(word) and word not in words.REVISIONS]


def _strength(clause: Clause) -> Strength | None:
    """How the clause names its choices; None if it does not, but speaks about something else or denies them."""
    if not clause.choices:
        return None
    spoken = _plain_words(clause)
    if any(words.denies(word) for word in spoken):
        return None
    foreign = foreign_words(clause)
    if clause.is_alternative or any(words.doubts(word) for word in spoken):
        return Strength.OPEN
    if clause.is_reason:
        is_contrast = clause.choices[-1] is not clause.items[-1] and not any(words.is_head(word) for word in spoken)
        return None if foreign or is_contrast else Strength.OPEN
    is_final = any(words.is_final(word) for word in spoken)
    if not foreign:
        if not any(words.is_head(word) for word in spoken):
            return Strength.LETTER if any(not choice.text for choice in clause.choices) else Strength.TEXT
        if all(choice.text for choice in clause.choices) and not words.HEADS - words.COPULAS & set(spoken):
            return Strength.TEXT
        return Strength.FINAL if is_final else Strength.STATED
    if _states_at_end(clause):
        return Strength.FINAL if is_final else Strength.STATED
    if predicate := _predicate(clause):
        return Strength.FITS if predicate in words.DESCRIBING else Strength.FINAL if is_final else Strength.STATED
    return None


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


def _predicate(clause: Clause) -> str | None:
    """What is said of the option at its beginning: ``B is correct in my view``, ``A matches what is shown``."""
    places = [number for number, item in enumerate(clause.items) if isinstance(item, Choice)]
    if not all(words.is_frame(item) for item in clause.items[: places[0]] if isinstance(item, str)):
        return None
    for item in clause.items[places[-1] + 1 :]:
        if not isinstance(item, str) or not words.is_frame(item):
            return None
        if item in words.SUBJECTS:
            return item
    return None


def _asks_for_choice(clause: Clause) -> bool:
    """A heading or a beginning after which the choice comes: ``Answer:``, ``The correct option is``."""
    spoken = _plain_words(clause)
    return (
        bool(spoken)
        and spoken != ["one"]  # the number
        and not foreign_words(clause)
        and not any(words.denies(word) or words.doubts(word) for word in spoken)
        and any(word in words.NAMED or (words.is_head(word) and word not in words.FRAME) for word in spoken)
    )


def _verdict_on_line(clauses: Sequence[Clause], place: int) -> bool | None:
    """What an analysis says at the end of an option's line: ``A: the circle moves, wrong.``"""
    if len(clauses[place].items) > 2:
        return None
    for clause in clauses[place + 1 : place + 4]:
        if clause.starts_line or any(choice.letters != clauses[place].choices[0].letters for choice in clause.choices):
            return None
        spoken = set(clause.words)
        if spoken and spoken <= words.WRONG:
            return False
        if spoken and spoken <= words.RIGHT:
            return True
    return None


def contradicts_its_letter(clauses: Sequence[Clause], claims: Sequence[Claim]) -> bool:
    """Whether right after a letter comes the text of another option."""
    for claim in claims:
        following = clauses[claim.place + 1] if claim.place + 1 < len(clauses) else None
        if following is None or claim.strength == Strength.TEXT or foreign_words(following) or following.is_reason:
            continue
        texts = {letter for choice in following.choices if choice.text for letter in choice.letters}
        if texts and all(choice.text for choice in following.choices) and not texts <= claim.letters:
            return True
    return False


def starts_sentence(clauses: Sequence[Clause], place: int) -> bool:
    return place == 0 or clauses[place - 1].sentence != clauses[place].sentence


def ends_sentence(clauses: Sequence[Clause], place: int) -> bool:
    return place + 1 == len(clauses) or starts_sentence(clauses, place + 1)
