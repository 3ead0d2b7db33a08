"""Random answers: none is right for two truths, none that lists options is right for any, none is much work."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from verl_video_tools.core import json_text
from verl_video_tools.core.choices import claims, clauses, grade_multiple_choice, headings, options, rules, words
from verl_video_tools.core.choices import text as cleaning
from verl_video_tools.core.choices.options import menu_of
from verl_video_tools.core.choices.rules import read_choice

NUM_ANSWERS = 100_000
MENUS = [
    ("red circle", "blue square", "green star", "yellow triangle"),
    ("a dog", "a cat", "a horse", "a parrot"),
    ("2", "3", "4", "5"),
    ("Left", "Right", "Up", "Down"),
    ("Vitamin A", "Vitamin B", "Vitamin C", "Vitamin D"),
    ("一只狗", "一只猫", "一匹马", "一只鹦鹉"),
    ("Yes", "No", "Both", "Neither"),
]
FORMS = [
    *[
        "{0}",
        "({0})",
        "{0}.",
        "{0})",
        "{0}:",
        "[{0}]",
        "**{0}**",
        '"{0}"',
        "`{0}`",
        "{0}. {1}",
        "({0}) {1}",
        "{0}: {1}",
    ],
    *["{0}) {1}", "{0} - {1}", "{1}", "{1} ({0})", "option {0}", "Option ({0})", "the answer is {0}", "Answer: {0}"],
    *[
        "The answer is ({0}).",
        "answer: {0}. {1}",
        "{0} is correct",
        "I choose {0}",
        "\\boxed{{{0}}}",
        "final answer: {0}",
    ],
    *[
        "<answer>{0}</answer>",
        '{{"answer": "{0}"}}',
        "答案是{0}",
        "选{0}",
        "정답은 {0}입니다",
        "答えは{0}です",
        "maybe {0}",
    ],
    *["{0} because it is", "I think it is {0}", "probably {0}", "{0} is the best answer", "$\\boxed{{\\text{{{0}}}}}$"],
]
SEPARATORS = [
    *[" ", "  ", ", ", ". ", "; ", "\n", "\n\n", " or ", " and ", "/", " / ", "|", " & ", "+", ", or ", ", and ", ": "],
    *[
        " as well as ",
        " - ",
        "。",
        "、",
        "\uff0c",
        " 或 ",
        " 또는 ",
        " または ",
        ".\n",
        ") ",
        "\n- ",
        " plus ",
        " then ",
        " not ",
    ],
]
FILLERS = [
    "",
    "So ",
    "Hm. ",
    "The ",
    "A ",
    "not ",
    "because ",
    "I see ",
    "wait, ",
    "**",
    "\\text{",
    "}",
    "(",
    '"',
    "{",
    "?",
]


def answers(generator: random.Random, number: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Letters and texts of options, statements, separators and scraps in any order."""
    for _ in range(number):
        menu = generator.choice(MENUS)
        parts = []
        for _ in range(generator.randrange(1, 3)):
            letter = generator.choice("ABCDE")
            text = generator.choice(menu)
            parts += [generator.choice(FILLERS), generator.choice(FORMS).format(letter, text)]
            parts += [generator.choice(SEPARATORS)]
        yield "".join(parts), menu


@pytest.mark.long
@pytest.mark.timeout(300)  # 15 seconds on a machine of its own
def test_no_answer_is_right_for_two_truths() -> None:
    generator = random.Random(20)
    num_right = 0
    for answer, menu in answers(generator, NUM_ANSWERS):
        right = [letter for letter in "ABCD" if grade_multiple_choice(answer, letter, menu)]
        assert len(right) <= 1, (answer, menu)
        num_right += len(right)
    assert num_right > NUM_ANSWERS // 10  # else it would show nothing


def test_lists_of_options_are_never_right() -> None:
    """Two to four options in one form with one separator: what a policy would write to be right by chance."""
    generator = random.Random(21)
    for _ in range(5_000):
        menu = generator.choice(MENUS)
        letters = generator.sample("ABCD", generator.randrange(2, 5))
        form, separator = generator.choice(FORMS), generator.choice(SEPARATORS[:-2])
        answer = separator.join(form.format(letter, menu["ABCD".index(letter)]) for letter in letters)
        right = [letter for letter in "ABCD" if grade_multiple_choice(answer, letter, menu)]
        assert right == [], (answer, menu)


LONG = [
    *[
        "(",
        "[",
        "{",
        "}",
        " ",
        "\n",
        " \n",
        '"',
        "'",
        "*",
        "_",
        "`",
        "$",
        "<",
        "&",
        "-",
        "=",
        "->",
        "\\",
        "\\\\",
        "...",
        "|",
    ],
    *[
        "\\boxed{",
        "\\boxed{\n",
        "\\text{",
        '{"answer": "',
        '{"answer": "B"} ',
        '{"a":',
        "<answer>",
        "</answer>",
        "<think>",
    ],
    *[
        "A. ",
        "A.",
        "B. ",
        "B ",
        "B, ",
        "(B)",
        "A|",
        "B+",
        "B or ",
        "not B ",
        "a.b.",
        "Mr. ",
        "answer is ",
        "the answer is B. ",
    ],
    *[
        "because ",
        "blue square ",
        "first option ",
        "# ",
        "1. ",
        "答案",
        "选",
        "정답은 ",
        "ア",
        "第一个选项",
        "la ",
        "correcta ",
        "respuesta ",
        "la respuesta ",
        "on the right ",
        "→",
        "wait, ",
    ],
]


@dataclass
class Counting:
    """A pattern that counts the characters between where it begins to look and where it finds something."""

    pattern: re.Pattern[str]
    work: Work

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._counted(self.pattern.search(text, start), start, len(text))

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._counted(self.pattern.match(text, start), start, start + 1)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._counted(self.pattern.fullmatch(text), 0, len(text))

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        for found in self.pattern.finditer(text, start):
            self._counted(found, start, 0)
            start = found.end()
            yield found
        self.work.amount += len(text) - start

    def __getattr__(self, name: str) -> Any:
        """What looks at all of a text, the last argument: `sub`, `split`, `findall`."""
        method = getattr(self.pattern, name)

        def counted(*arguments: Any) -> Any:
            self.work.amount += len(arguments[-1])
            return method(*arguments)

        return counted if callable(method) else method

    def _counted(self, found: re.Match[str] | None, start: int, end: int) -> re.Match[str] | None:
        self.work.amount += (end if found is None else found.end()) - start
        return found


@dataclass
class Work:
    """Lines of the grader that are run, and characters that its patterns are given: the same number on any machine."""

    amount: int = 0

    def of(self, text: str) -> int:
        self.amount, before = 0, sys.gettrace()
        sys.settrace(self._trace)
        try:
            read_choice(text, menu_of(MENUS[0]))
        finally:
            sys.settrace(before)
        return self.amount

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if "verl_video_tools" not in frame.f_code.co_filename:
            return None
        self.amount += event == "line"
        return self._trace


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted = Work()
    for module in (claims, clauses, headings, options, rules, cleaning, words, json_text):
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                monkeypatch.setattr(module, name, Counting(value, counted))
    return counted


BEGINNINGS = ("B. text ", "hm ")
"""Of answers that say their letter at once, and of those in which one is looked for."""


@pytest.mark.slow
def test_work_grows_as_the_length(work: Work) -> None:
    """Eight times the text is eight times the work, not 64 times."""
    for piece in LONG:
        for beginning in BEGINNINGS:
            short, long = (work.of(beginning + piece * (length // len(piece)) + "x") for length in (200, 1_600))
            assert short < long <= 10 * short, (beginning, piece, short, long)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_no_pattern_tries_every_place_against_every_other() -> None:
    """What patterns do within cannot be counted. All texts together take eight seconds; one pattern that tried 20
    things for every two places of a text would take more than the timeout."""
    for piece in LONG:
        for beginning in BEGINNINGS:
            read_choice(beginning + piece * (20_000 // len(piece)) + "x", menu_of(MENUS[0]))
