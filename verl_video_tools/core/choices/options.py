"""The options of a question: their letters, and where their texts occur in an answer."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from verl_video_tools.core.choices.text import CJK, QUOTES, unwrapped

Options = Sequence[str] | Mapping[str, str]

FIRST_MARK = 0xE000
"""In a masked text, the option with number n is the character FIRST_MARK + n, which Unicode leaves to private use."""
_ARTICLE = re.compile(r"(?:an?|the)\s+(?=\S\S)", re.IGNORECASE)


def plain_text(text: str) -> str:
    """For comparing short texts: case, spacing and outer punctuation do not count."""
    return " ".join(text.casefold().replace("\u2212", "-").split()).strip(" .,;:!?。" + QUOTES)


@dataclass(frozen=True, eq=False)
class Menu:
    """The options by letter; empty where the reader is given none. `menu_of` gives the same one for the same options.

    Attributes:
        letters: upper case, in order.
        texts: of the options as they are given, in the same order.
    """

    letters: tuple[str, ...]
    texts: tuple[str, ...]

    @cached_property
    def plain(self) -> tuple[str, ...]:
        """Each option's text as `plain_text` gives it, without its letter."""
        pairs = zip(self.letters, self.texts, strict=True)
        return tuple(plain_text(_without_label(unwrapped(text), letter)) for letter, text in pairs)

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Finds the texts of options, an article before them included; None where there is nothing to find. Compiling
        it takes milliseconds, which a letter in an answer does not need."""
        cores = [_ARTICLE.sub("", text, count=1) if _ARTICLE.match(text) else text for text in self.plain]
        # A text of one Latin letter would be taken for one of the menu, and one that two options share for either.
        numbers = [
            n for n, core in enumerate(cores) if core and not re.fullmatch("[a-z]", core) and cores.count(core) == 1
        ]
        numbers.sort(key=lambda number: -len(cores[number]))
        patterns = [f"(?P<_{number}>{_bounded(cores[number])})" for number in numbers]
        if not patterns:
            return None
        return re.compile(rf"(?:(?<![^\W_])(?:an?|the)\s+)?(?:{'|'.join(patterns)})", re.IGNORECASE)

    def has(self, letter: str) -> bool:
        """Whether the letter is one of the menu, as any is of none."""
        return not self.letters or letter in self.letters

    def letter_of(self, text: str) -> str | None:
        """The letter of the one option that has this text."""
        plain = plain_text(text)
        found = [letter for letter, option in zip(self.letters, self.plain, strict=True) if plain and option == plain]
        return found[0] if len(found) == 1 else None

    def masked(self, text: str) -> str:
        """`text` with a mark in place of every option's text."""
        if self.pattern is None:
            return text
        return self.pattern.sub(lambda match: f" {chr(FIRST_MARK + int((match.lastgroup or '_0')[1:]))} ", text)

    def at_mark(self, mark: str) -> tuple[str, str]:
        """Letter and plain text of the option that a mark stands for."""
        number = ord(mark) - FIRST_MARK
        return self.letters[number], self.plain[number]


def menu_of(options: Options | None) -> Menu:
    """The menu of a question's options, as `grade_multiple_choice` takes them."""
    if options is None:
        return _menu(())
    if isinstance(options, Mapping):
        return _menu(tuple((str(letter).strip().upper(), str(text)) for letter, text in options.items()))
    return _menu(tuple(zip(string.ascii_uppercase, map(str, options), strict=False)))


@lru_cache(maxsize=1024)
def _menu(pairs: tuple[tuple[str, str], ...]) -> Menu:
    return Menu(tuple(letter for letter, _ in pairs), tuple(text for _, text in pairs))


def _bounded(core: str) -> str:
    """A pattern for a text that begins and ends with whole words; in scripts without spaces it may end anywhere."""
    before = "" if re.match(CJK, core[0]) else r"(?<![^\W_])(?<![^\W_][.'\u2019-])"
    if core[0].isdecimal():
        before += r"(?<!(?<!\w)-)"  # the 1 of "-1"
    after = "" if re.match(CJK, core[-1]) else r"(?![^\W_]|[.:'\u2019-][^\W_])"
    return before + r"\s+".join(map(re.escape, core.split())) + after


def _without_label(text: str, letter: str) -> str:
    return re.sub(rf"^\(?{re.escape(letter)}\s*[.):]\s*", "", text, flags=re.IGNORECASE)
