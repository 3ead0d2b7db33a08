"""Which ways of answering a multiple-choice question count as naming an option."""

import random
import string
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_video_tools.grading.choices import chosen_option
from verl_video_tools.rewards import grade_multiple_choice

COLOURS = ["red circle", "blue square", "green star", "yellow triangle"]


FORMS_OF_B = [
    *[
        "B",
        "b",
        "(B)",
        "(b)",
        "[B]",
        "B.",
        "B)",
        "B:",
        " B \n",
        "\uff22",
        '"B"',
        "**B**",
        "`B`",
        "$B$",
        "\\boxed{B}",
    ],
    *["<answer>B</answer>", "\\text{B}", "Option B", "option (B).", "B. text", "B.text", "b) text", "(B) text"],
    *["B: text", "B - text", "B. text, and more text", "B. Vitamin A and C", "The answer is B", "Answer: B"],
    *["the answer is (b).", "The correct answer is: **B**", "Final answer: B. text", "The correct option is B."],
    *["Answer is: B", "The answer is option B", "I choose B because it moves", "Option B is correct"],
    *["It moves. Therefore, the answer is B: it does.", "The answer is B, not C.", "So the answer is \\text{B}"],
    *["The answer is B. The other options, A and C, are wrong."],
    *["B is the closest match.", "B accurately describes the action.", "B is the most fitting option."],
    *["None of the options fits perfectly, but B is the closest.", "B is the most logical choice."],
]


def test_forms_of_a_letter() -> None:
    for answer in FORMS_OF_B:
        for options in (None, COLOURS):
            assert grade_multiple_choice(answer, "B", options), answer
            assert not grade_multiple_choice(answer, "C", options), answer


NONE_OR_SEVERAL = [
    *[None, "", " ", ".", "?", "Bob", "Both", "BC", "AB", "U.S.", "i.e. text", "a dog", "A dog"],
    *["B or C", "B, C", "B and C", "B/C", "B C", "B. C.", "(B) (C)", "A. red or B. blue", "A. red\nB. blue"],
    *["not B", "The answer is not B", "The answer isn't B", "Option B is wrong", "The answer is B or C"],
    *["The answer is A. No, the answer is B", "The answer is a dog", "The answer is blue", "\u0412"],
]


def test_no_letter_or_several() -> None:
    taken = [(answer, truth) for answer in NONE_OR_SEVERAL for truth in "ABC" if grade_multiple_choice(answer, truth)]
    assert taken == []


@pytest.mark.parametrize(
    ("answer", "truth", "options", "right"),
    [
        ("D. Visit the U.S.", "D", None, True),
        ("D. Visit the U.S.", "S", None, False),
        ("Blue square.", "B", COLOURS, True),
        ("the answer is blue  SQUARE", "B", COLOURS, True),
        ("B blue square", "B", COLOURS, True),
        ("B. bluish", "B", COLOURS, True),
        ("B red circle", "B", COLOURS, False),  # letter and text contradict
        ("B. red circle", "B", COLOURS, False),
        ("B. red circle", "A", COLOURS, False),
        ("E", "B", COLOURS, False),
        ("E", "E", COLOURS, False),  # off the menu
        ("blue square", "B", ["A. red circle", "B. blue square"], True),
        ("B. blue square", "B", {"A": "red circle", "B": "blue square"}, True),
        ("A dog", "A", ["A dog", "A cat"], True),
        ("a cat", "B", ["A dog", "A cat"], True),
        ("B. C", "B", ["A", "C", "D"], True),
        ("the same", "A", ["the same", "the same"], False),  # two options read alike
        ("B", "(B)", COLOURS, True),
        ("B", "b. blue square", COLOURS, True),
    ],
)
def test_options(answer: str, truth: str, options: list[str] | dict[str, str] | None, right: bool) -> None:
    assert grade_multiple_choice(answer, truth, options) is right


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("B\n\nThe caption says so, which rules out A (red) and C (green).", "B"),
        ("The answer is B. Option A cannot be right, and option C describes what the child does.", "B"),
        ("B. It starts late; a third bounce, as in option C, belongs to another.", "B"),
        ("Option B is correct: it peaks then. In A (red circle) and C (green star) it rises.", "B"),
        ("If it were out, it would fit option C. It was in, and that corresponds to choice A", "A"),
        ("Compared with the others, (A) begins early, (C) ends late, so only (B) remains.", "B"),
        ("It stops beside the door \u2192 the chair \u2192 B.", "B"),
        ('{"answer": "B", "text": "blue square"}', "B"),
    ],
)
def test_what_explains_an_answer_states_no_other(answer: str, truth: str) -> None:
    assert [letter for letter in "ABCD" if grade_multiple_choice(answer, letter, COLOURS)] == [truth]


@pytest.mark.parametrize(
    "answer",
    [
        *["B\n\nSo the answer is C.", "B. It moves, so C.", "The answer is B, but C would be fine too.", "B\n\nC"],
        *[
            "Could be (B), but (A) is just as plausible.",
            "B seems likely, but so does D.",
            "B, though C cannot be ruled out.",
        ],
        *[
            '{"answer": "B", "text": "green star"}',
            "A: one, B: two, C: three",
            "The answer is A. Wait, the answer is B. Actually, hmm.",  # nothing stands after the last correction
            "The final answer is B. I think it is A. The final answer is B.",
            "A. He runs, B. he sits",
            "A \u2713\nB \u2713",
        ],
    ],
)
def test_a_statement_after_the_first_is_a_conflict(answer: str) -> None:
    assert [letter for letter in "ABCD" if grade_multiple_choice(answer, letter, COLOURS)] == []


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("A. Red circle - Not visible\nB. Blue square - Yes\n\nTherefore, the correct answer is B. Blue square.", "B"),
        ("A. Red circle - No evidence\nB. Blue square - Yes, visible\nC. Green star - No\n\nSo the answer is B.", "B"),
        ("The answer is B.\n- Option A. Red circle: this does not happen.", None),
        ("B. Blue square\n\nExplanation:\n- A. Red circle: not shown.\n- C. Green star: not shown.", None),
        ("B\n\nA. is wrong.", None),
        ("(B) blue square\nA. red circle. It isn't there.\nSo the answer is B.", None),
        ("A. Red circle - not shown\nB. Blue square", None),  # cut off
        ("A. Red circle - seen first\nB. Blue square - not shown", None),
        ("A. Red circle - seen first\nC. Green star - not shown\nB. Blue square - yes\nSo the answer is B.", "B"),
        ("B\nA. He does not run.", None),  # an option's text, as it seems
        ("B\nA. Red circle, not wrong.", None),
        ("B\nA. Nothing else fits.", None),
        ("B\nA. No other option fits.", None),
        ("B\nA. Not sure.", None),
        ("B\nA. Red circle: not shown, but it may fit too.", None),
        ("B\nNo, wait.\nA. Red circle: not the square.", None),
        ("B\nSo A. Red circle: not the square.", None),
        ("B. A. Red circle: not shown.", None),
        ("B\nA. Red circle: not shown.\nC. Green star", None),
        ("The answer is B.\nA. Red circle", None),
    ],
)
def test_options_on_lines_of_their_own(answer: str, letter: str | None) -> None:
    assert chosen_option(answer, COLOURS) == letter


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("The answer is A. Wait, the answer is B.", "B"),
        ("The answer is A. Wait, the answer is B. Actually, the answer is C.", "C"),
        ("The answer is A. Wait, the answer is B. Actually, the answer is A.", "A"),
    ],
)
def test_the_last_correction_counts(answer: str, letter: str) -> None:
    assert chosen_option(answer, COLOURS) == letter


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("<think>The answer is A.</think>The answer is B.", "B"),
        ("The answer is A.</think>The answer is B.", "B"),
        ("<think>x</think>The answer is A.<think>no</think>The answer is B.", "B"),
        ("<think>The answer is A.", None),  # cut off
    ],
)
def test_what_stands_before_the_end_of_the_last_reasoning_is_no_answer(answer: str, letter: str | None) -> None:
    assert chosen_option(answer, COLOURS) == letter


@pytest.mark.parametrize("form", ["<answer>{}</answer>", "\\boxed{{{}}}", '{{"answer": "{}"}}'])
def test_words_around_all_that_is_set_apart_count_and_those_between_do_not(form: str) -> None:
    first, second = form.format("B"), form.format("C")
    assert chosen_option(f"x {first} y {second} z", COLOURS) is None
    assert chosen_option(f"{first} or A? {first}", COLOURS) == "B"
    assert chosen_option(f"{first} or A? {second}", COLOURS) is None
    assert chosen_option(f"{first} {first} The answer is A.", COLOURS) is None
    assert chosen_option(f"The answer is A. {first}", COLOURS) is None


@pytest.mark.parametrize(("num_words", "letter"), [(3, "B"), (14, "B"), (15, None)])
def test_a_longer_sentence_that_ends_in_an_options_text_is_about_something_else(
    num_words: int, letter: str | None
) -> None:
    words = ["the"] * (num_words - 2) + ["object", "is"]
    assert chosen_option(f"{' '.join(words)} blue square.", COLOURS) == letter


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("There are four penguins on the ice.", True),
        ("I can see four birds.", True),
        ("There are four penguins and two seals.", False),
        ("Four minutes in, it is quiet.", False),
    ],
)
def test_a_count_is_an_answer(answer: str, right: bool) -> None:
    assert grade_multiple_choice(answer, "C", ["Two", "Three", "Four"]) is right


COUNTS = ["2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("answer", "options", "letter"),
    [
        ("There are 2 on the left and 2 on the right. Answer: C", COUNTS, "C"),
        ("4, with 2 on the right.", COUNTS, None),  # it was A: "2 ... right"
        ("The right answer is A", COUNTS, "A"),
        ("It points to the right option, A", COUNTS, "A"),
        ("It moves to the right.", ["left", "right"], "B"),
        ("-3", COUNTS, None),
        ("The answer is \u22123.", COUNTS, None),
        ("\u22123", ["3", "-3"], "B"),
        ("2-3", COUNTS, None),
        ("- 3", COUNTS, "B"),
        ("He is at the park.", ["home", "the park"], "B"),
        ("The boy is at home.", ["home", "the park"], "A"),
        ("The event occurs at 0:20.", ["0:10", "0:20", "0:30"], "B"),
        ("It happens around 10 seconds.", ["5 seconds", "10 seconds"], "B"),
        ("three", COUNTS, "B"),
        ("<answer>Three.</answer>", COUNTS, "B"),
        ("The answer is 0:20-0:30.", ["0:10 - 0:20", "0:20 - 0:30"], "B"),
        ("0:20 to 0:30", ["00:10-00:20", "00:20-00:30"], "B"),
        ("one of them", ["1", "2"], None),
        ("A dog jumps at 3", COUNTS, None),
        ("A dog jumps in scene 3", COUNTS, None),
    ],
)
def test_places_times_and_signs(answer: str, options: list[str], letter: str | None) -> None:
    assert chosen_option(answer, options) == letter


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("La respuesta correcta es B. El hombre lava los platos.", "B"),
        ("La respuesta es la opci\u00f3n B", "B"),
        ("Respuesta: blue square", "B"),
        ("A resposta correta \u00e9 B.", "B"),
        ("La bonne r\u00e9ponse est la B.", "B"),
        ("Die richtige Antwort ist B, weil er sp\u00fclt.", "B"),
        ("La risposta corretta \u00e8 B.", "B"),
        ("\u041f\u0440\u0430\u0432\u0438\u043b\u044c\u043d\u044b\u0439 \u043e\u0442\u0432\u0435\u0442 \u2014 B.", "B"),
        ("\u0627\u0644\u0625\u062c\u0627\u0628\u0629 \u0627\u0644\u0635\u062d\u064a\u062d\u0629 \u0647\u064a B.", "B"),
        ("\u0110\u00e1p \u00e1n \u0111\u00fang l\u00e0 B.", "B"),
        ("Jawaban yang benar adalah B.", "B"),
        ("Do\u011fru cevap: B", "B"),
        ("La respuesta es A o B", None),
        ("La respuesta no es B", None),
        ("Die Antwort ist nicht B", None),
        ("La r\u00e9ponse n'est pas B", None),
        ("La respuesta es Bueno", None),
        ("答案是B而不是A", "B"),
    ],
)
def test_other_languages(answer: str, letter: str | None) -> None:
    assert chosen_option(answer, COLOURS) == letter


@pytest.mark.parametrize("truth", ["", "AB", "42", "red circle"])
def test_truth_must_name_an_option(truth: str) -> None:
    with pytest.raises(ValueError, match="truth must be the letter"):
        grade_multiple_choice("B", truth)


LETTERS = st.sampled_from(string.ascii_uppercase[:4])


@settings(max_examples=30)
@given(answer=st.text(max_size=60), options=st.none() | st.lists(st.text(max_size=8), min_size=4, max_size=4))
def test_any_answer_names_at_most_one_option(answer: str, options: list[str] | None) -> None:
    assert sum(grade_multiple_choice(answer, letter, options) for letter in "ABCD") <= 1


@given(letter=LETTERS, form=st.sampled_from(["{}", "({})", "{}.", "The answer is {}", "Answer: ({})", " {} "]))
def test_every_form_names_its_letter(letter: str, form: str) -> None:
    for written in (letter, letter.lower()):
        assert grade_multiple_choice(form.format(written), letter, COLOURS)


@given(first=LETTERS, second=LETTERS, joint=st.sampled_from([" or ", ", ", "/", " and ", " & ", "; "]))
def test_two_letters_name_nothing(first: str, second: str, joint: str) -> None:
    right = grade_multiple_choice(f"{first}{joint}{second}", first)
    assert not right or first == second


FORMS = [
    *(
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
    ),
    *("{0}) {1}", "{0} - {1}", "{1}", "{1} ({0})", "option {0}", "Option ({0})", "the answer is {0}", "Answer: {0}"),
    *(
        "The answer is ({0}).",
        "answer: {0}. {1}",
        "{0} is correct",
        "I choose {0}",
        "\\boxed{{{0}}}",
        "final answer: {0}",
    ),
    *(
        "<answer>{0}</answer>",
        '{{"answer": "{0}"}}',
        "答案是{0}",
        "选{0}",
        "정답은 {0}입니다",
        "答えは{0}です",
        "maybe {0}",
    ),
    *("{0} because it is", "I think it is {0}", "probably {0}", "{0} is the best answer", "$\\boxed{{\\text{{{0}}}}}$"),
]
SEPARATORS = [
    *(" ", "  ", ", ", ". ", "; ", "\n", "\n\n", " or ", " and ", "/", " / ", "|", " & ", "+", ", or ", ", and ", ": "),
    *(
        " as well as ",
        " - ",
        "\u3002",
        "\u3001",
        "\uff0c",
        " 或 ",
        " 또는 ",
        " または ",
        ".\n",
        ") ",
        "\n- ",
        " plus ",
        " then ",
    ),
]
MENUS = [
    ("red circle", "blue square", "green star", "yellow triangle"),
    ("2", "3", "4", "5"),
    ("Left", "Right", "Up", "Down"),
    ("Vitamin A", "Vitamin B", "Vitamin C", "Vitamin D"),
    ("一只狗", "一只猫", "一匹马", "一只鹦鹉"),
]


def lists_of_options(number: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Two to four options in one form with one separator."""
    generator = random.Random(21)
    for _ in range(number):
        menu = generator.choice(MENUS)
        letters = generator.sample("ABCD", generator.randrange(2, 5))
        form, separator = generator.choice(FORMS), generator.choice(SEPARATORS)
        yield separator.join(form.format(letter, menu["ABCD".index(letter)]) for letter in letters), menu


@pytest.mark.slow
def test_lists_of_options_are_never_read() -> None:
    """What a policy would write to be right by chance."""
    read = [(answer, menu) for answer, menu in lists_of_options(4_000) if chosen_option(answer, menu) is not None]
    assert read == []
