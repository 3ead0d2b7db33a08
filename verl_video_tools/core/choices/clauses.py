"""Cut a cleaned text into clauses: words, and the choices among them."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from verl_video_tools.core.choices import words
from verl_video_tools.core.choices.headings import in_english
from verl_video_tools.core.choices.options import Menu
from verl_video_tools.core.choices.text import CJK

_ORDINALS = {"first": "A", "second": "B", "third": "C", "fourth": "D", "fifth": "E"}
_ORDINAL = re.compile(r"\b(?:the )?(first|second|third|fourth|fifth) (?:option|choice|one)\b", re.IGNORECASE)
_CJK_ORDINAL = re.compile("第([一二三四五]) ?个? ?选项")
_AND = re.compile(r"\b(?:as well as|along with|together with|plus)\b", re.IGNORECASE)
_NO_DOUBT = re.compile(
    r"\b(?:without (?:a |any )?(?:doubt|hesitation|question)|no doubt|beyond doubt)\b", re.IGNORECASE
)
_EQUALLY = re.compile(
    r"\bjust as(?= (?:good|likely|plausible|possible|probable|right|correct|well)\b)"
    r"|\bso (?:do|does|did|is|would|could|might)(?= (?:option |choice )?\(?[A-Z]\b)"
)
_NOT_EXCLUDED = re.compile(
    r"\b(?:cannot|can't|can not|couldn't|could not) be (?:\w+ )?(?:excluded|ruled out|eliminated|dismissed|rejected)\b",
    re.IGNORECASE,
)
_SIDE = re.compile(
    r"\b((?:on|to|at|from|in|towards?) (?:the|his|her|its|their|your|my)(?: far| very)?) right\b"
    r"(?! (?:answer|option|choice|one|letter)\b)",
    re.IGNORECASE,
)
"""Where something is seen: ``4, with 2 on the right``."""
_ELSE = re.compile(r"\bin which case\b", re.IGNORECASE)
_TOKEN = re.compile(
    rf"""(?P<mark>[\ue000-\uf8ff])
    | \((?P<enclosed>[A-Z])\)
    | (?P<run>{CJK}+)
    | (?P<word>(?:mr|mrs|ms|dr|prof|st|vs|etc|fig)\.
        | (?:[A-Za-z]\.){{2,}}[A-Za-z]?(?![A-Za-z])
        | [A-Za-z]\+{{1,2}}(?!\s?[^\W_]|[+(])
        | \d+(?:[.,:]\d+)*%?
        | (?:(?!{CJK})[^\W_])+(?:['\u2019-](?:(?!{CJK})[^\W_])+)*)
    | (?P<ellipsis>\.{{2,}})
    | (?P<end>[.!?;])
    | (?P<line>\n)
    | (?P<arrow>→)
    | (?P<colon>[:=])
    | (?P<comma>[,()\[\]\u2014\u2013]|(?<=\s)-(?=\s))
    | (?P<joint>[/&|+])""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Choice:
    """One or more options that a text names in one place.

    Attributes:
        letters: upper case; several where they are joined, as in ``A or B`` and ``A, B``.
        text: the plain text of the option where it is named by that, else "".
        is_enclosed: the letter stood in brackets, quotes or bold print, so it is no article.
    """

    letters: tuple[str, ...]
    text: str = ""
    is_enclosed: bool = False


@dataclass
class Clause:
    """Words and choices between two stops.

    Attributes:
        items: lower-case words and choices.
        is_reason: it begins with "because" or "although" or the like.
        is_alternative: it begins with "or".
        is_conclusion: it begins with "so" or the like, or an arrow leads to it.
        is_question: its sentence ends in a question mark.
        is_revision: it begins with "wait" or the like.
        names_letter: it names a choice by its letter.
        is_label: a letter that prose follows at once, as in "(B) He runs".
        starts_line: it is the first of its line.
        sentence: the number of its sentence.
    """

    items: list[str | Choice] = field(default_factory=list)
    is_reason: bool = False
    is_alternative: bool = False
    is_conclusion: bool = False
    is_question: bool = False
    is_revision: bool = False
    names_letter: bool = False
    is_label: bool = False
    starts_line: bool = False
    sentence: int = 0

    @property
    def choices(self) -> list[Choice]:
        return [item for item in self.items if isinstance(item, Choice)]

    @property
    def words(self) -> list[str]:
        return [item for item in self.items if isinstance(item, str)]


class _Token(NamedTuple):
    kind: str  # "word", "choice", or how a stop is called in _TOKEN
    word: str = ""  # as written
    choice: Choice | None = None


def clauses_of(text: str, menu: Menu) -> list[Clause]:
    """The clauses of a text that `unwrapped` cleaned, those without words left out."""
    text = _ORDINAL.sub(lambda match: f" ({_ORDINALS[match[1].lower()]}) ", in_english(menu.masked(text)))
    text = _EQUALLY.sub("equally", _ELSE.sub("or", _NOT_EXCLUDED.sub("possible", text)))
    text = _SIDE.sub(r"\1 rightmost", _NO_DOUBT.sub("surely", _AND.sub("and", text)))
    text = _CJK_ORDINAL.sub(lambda match: f" ({'ABCDE'['一二三四五'.index(match[1])]}) ", text)
    tokens = _without_excluded(_joined(_lettered(list(_tokens(text, menu)), menu)))
    return [clause for clause in _cut(tokens) if clause.items or clause.is_revision]


def _tokens(text: str, menu: Menu) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "mark":
            letter, plain = menu.at_mark(match[0])
            yield _Token("choice", plain, Choice((letter,), plain))
        elif kind == "enclosed":
            yield _Token("choice", match["enclosed"].upper(), Choice((match["enclosed"].upper(),), is_enclosed=True))
        elif kind != "ellipsis":
            yield _Token("word" if kind == "run" else kind, match[0].replace("\u2019", "'"))


def _lettered(tokens: Sequence[_Token], menu: Menu) -> list[_Token]:
    """Single letters that stand for an option become choices; the article and the pronoun do not."""
    blank = _Token("line")
    is_only = sum(token.kind == "word" for token in tokens) == 1
    found = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1] if number else blank
        after = tokens[number + 1] if number + 1 < len(tokens) else blank
        if (
            token.kind == "word"
            and len(token.word) == 1
            and token.word in string.ascii_letters
            and _is_letter(token, before, after, is_only, menu)
        ):
            token = _Token("choice", token.word, Choice((token.word.upper(),)))
        found.append(token)
    return found


def _is_letter(token: _Token, before: _Token, after: _Token, is_only: bool, menu: Menu) -> bool:
    stops = after.kind not in ("word", "choice")
    if token.word in ("I", "i"):
        return is_only and stops and "I" in menu.letters
    if token.word == "A":
        if before.word.lower() in ("option", "options", "choice", "letter"):
            return True
        follows = after.word.lower() in words.AFTER_A or re.match(f"{CJK}|[A-Z]$|(?:The|I|Answer|Option)$", after.word)
        return after.kind != "word" or bool(follows)
    if token.word.isupper():
        return True
    leads = before.kind == "line" or (before.kind in ("word", "colon") and words.is_frame(before.word.lower()))
    if token.word == "a":
        return leads and stops and after.kind != "joint"
    return leads and (stops or after.kind == "choice" or words.is_reason(after.word) or after.word in ("is", "or"))


def _joined(tokens: Sequence[_Token]) -> list[_Token]:
    """Letters with nothing but commas, "or" and the like between them become one choice of several letters."""
    found: list[_Token] = []
    pending: list[_Token] = []  # what stands between the last letter and this place
    for token in tokens:
        last = found[-1].choice if found else None
        this = token.choice
        is_list = this and not this.text and last and not last.text and len(pending) <= 4
        if this and last and is_list and not (pending and last.letters[-1:] == this.letters):
            letters = tuple(dict.fromkeys((*last.letters, *this.letters)))
            found[-1] = _Token("choice", found[-1].word, Choice(letters, "", True))
            pending = []
        elif last and (token.kind in ("comma", "joint") or token.word.lower() in words.JOINTS):
            pending.append(token)
        else:
            found += pending
            found.append(token)
            pending = []
    return found + pending


def _without_excluded(tokens: Sequence[_Token]) -> list[_Token]:
    """Without ``not C``, ``rather than C`` and the like."""
    found: list[_Token] = []
    for token in tokens:
        if token.kind == "choice":
            end = len(found)
            while end and found[end - 1].word.lower() in ("the", "a", "an", "option", "choice", "answer"):
                end -= 1
            last = [part.word.lower() if part.kind == "word" else "" for part in found[max(end - 2, 0) : end]]
            if tuple(last) in words.EXCLUDED_AFTER:
                del found[end - 2 :]
                continue
            if last and last[-1] in words.EXCLUDERS:
                del found[end - 1 :]
                continue
        found.append(token)
    return found


def _cut(tokens: Sequence[_Token]) -> Iterator[Clause]:
    """Clauses end at stops, at connectives, and after a letter that a colon, or at their beginning prose, follows."""
    clause = Clause(starts_line=True)
    sentence = [clause]
    num_sentences = 0
    for number, token in enumerate(tokens):
        word = token.word.lower()
        is_reason = token.kind == "word" and (words.is_reason(word) or word in words.CONCESSIONS)
        is_connective = token.kind == "word" and word in words.CONNECTIVES | words.OR
        if token.kind in ("line", "end"):
            for one in sentence:
                one.is_question = token.word == "?"
            yield from sentence
            num_sentences += 1
            clause = Clause(starts_line=token.kind == "line", sentence=num_sentences)
            sentence = [clause]
        elif (
            token.kind in ("comma", "joint", "arrow")
            or is_connective
            or is_reason
            or (token.kind == "colon" and (_is_said(clause) or clause.items == ["no"]))
        ):
            clause = Clause(
                is_reason=is_reason,
                is_alternative=word in words.OR or token.word == "/",
                is_conclusion=token.kind == "arrow" or word in words.CONCLUSIONS,
                sentence=num_sentences,
            )
            sentence.append(clause)
            if is_reason and not word.isascii():  # a run of characters that begins with the word
                clause.items.append(word)
        elif token.choice:
            clause.items.append(token.choice)
            clause.names_letter |= not token.choice.text
            if token.choice.is_enclosed and len(clause.items) == 1 and _begins_prose(tokens[number + 1 : number + 2]):
                clause.is_label = True
                clause = Clause(sentence=num_sentences)
                sentence.append(clause)
        else:
            clause.is_revision |= not clause.items and word in words.REVISIONS
            clause.items.append(":" if token.kind == "colon" else word)
    yield from sentence


def _is_said(clause: Clause) -> bool:
    """Whether a colon after it explains a letter: ``B:``, ``B is correct:``; not ``Answer: B, final answer:``."""
    last = clause.items[-1] if clause.items else None
    return clause.names_letter and (isinstance(last, Choice) or (last in words.PREDICATES and last not in words.NAMED))


def _begins_prose(following: Sequence[_Token]) -> bool:
    """Whether what follows a letter is a sentence of its own and says nothing about the letter."""
    if not following or following[0].kind not in ("word", "choice"):
        return False
    word = following[0].word.lower()
    is_about_it = word in words.ABOUT_A_CHOICE or word in words.PREDICATES or words.denies(word) or re.match(CJK, word)
    return bool(following[0].choice) or not is_about_it
