"""Truths of rows in their published forms, brought to the letter of the option."""

import pytest

from verl_video_tools.core.truths import Options, canonical_letter

ANIMALS = ["cat", "dog", "a horse"]


FORMS_OF_B = [
    *("B", "(B)", "[B]", "B.", "B)", "b", "(b)", ' " B " ', '"B"', "\uff22", "B. dog", "(B) dog", "B: dog", "b) Dog."),
]


@pytest.mark.parametrize(
    "options",
    [None, ANIMALS, ["A. cat", "B. dog", "C. a horse"], {"A": "cat", "B": "dog", "C": "a horse"}],
)
def test_forms_of_a_letter(options: Options | None) -> None:
    assert [truth for truth in FORMS_OF_B if canonical_letter(truth, options) != "B"] == []


@pytest.mark.parametrize("truth", ["dog", "Dog.", " DOG ", '"dog"', "<answer>B</answer>", "<answer>dog</answer>"])
def test_the_text_of_an_option(truth: str) -> None:
    assert canonical_letter(truth, ANIMALS) == "B"


def test_an_article_is_part_of_a_text() -> None:
    assert canonical_letter("A horse", ANIMALS) == "C"
    assert canonical_letter("a foul", ["a goal", "a foul"]) == "B"


NO_OPTION = [
    "",
    " ",
    "a foul",
    "a cow",
    "cow",
    "D",
    "(D)",
    "D. cow",
    "AB",
    "A, B",
    "A or B",
    "B. cat",
    "dog or cat",
    "42",
]


def test_no_option() -> None:
    assert [truth for truth in NO_OPTION if canonical_letter(truth, ANIMALS) is not None] == []


@pytest.mark.parametrize("truth", ["a foul", "dog", "a", "the dog", "A man runs"])
def test_without_options_a_text_names_nothing(truth: str) -> None:
    assert canonical_letter(truth, None) == ("A" if truth == "a" else None)


def test_options_that_read_alike_have_no_letter() -> None:
    assert canonical_letter("dog", ["dog", "Dog."]) is None
    assert canonical_letter("A", ["dog", "Dog."]) == "A"


@pytest.mark.parametrize(
    ("truth", "options", "letter"),
    [
        ("three", ["2", "3", "4"], "B"),
        ("3", ["two", "three", "four"], "B"),
        ("3.0", ["2", "3"], "B"),
        ("00:20-00:30", ["00:10 - 00:20", "00:20 - 00:30"], "B"),
        ("from 0:20 to 0:30", ["00:10\u201300:20", "00:20\u201300:30"], "B"),
        ("0:30", ["00:20", "00:30"], "B"),
        ("three", ["3", "3.0"], None),
        ("three", ["three", "3"], "A"),
        ("3", ["three dogs", "two dogs"], None),
        ("30", ["0:20", "0:30"], None),
    ],
)
def test_the_value_of_an_option(truth: str, options: list[str], letter: str | None) -> None:
    assert canonical_letter(truth, options) == letter
