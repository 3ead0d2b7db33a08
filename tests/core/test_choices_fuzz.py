"""Random answers: none is right for two truths, none that lists options is right for any, none takes long."""

import random
import time
from collections.abc import Iterator

import pytest

from verl_video_tools.core.choices import grade_multiple_choice
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


@pytest.mark.slow
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
    for _ in range(20_000):
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
        "→",
        "wait, ",
    ],
]


@pytest.mark.parametrize("piece", LONG)
def test_time_grows_as_the_length(piece: str) -> None:
    """Eight times the text takes eight times as long, not 64 times; the bound leaves room for a busy machine."""

    def seconds(length: int) -> float:
        text = "B. text " + piece * (length // len(piece)) + "x"
        started = time.process_time()
        read_choice(text, menu_of(MENUS[0]))
        return time.process_time() - started

    short = min(seconds(4_000 + repeat) for repeat in range(3))
    long = min(seconds(32_000 + repeat) for repeat in range(3))  # a collection of garbage may fall into one
    assert long < 32 * max(short, 0.002)
