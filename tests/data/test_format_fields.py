"""How fields of annotations are read: option lines, letters, lists, moved videos, times."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest

from tests.data.format_cases import CASES, prepare
from verl_video_tools.core.errors import RowError
from verl_video_tools.core.numbers import clock_seconds
from verl_video_tools.core.sample import check_question
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark, get_source
from verl_video_tools.data.formats.dialogues import LongVTParquet
from verl_video_tools.data.formats.fields import (
    find_moved_video,
    letter_at,
    letter_of,
    listed_options,
    segment,
    split_options,
    truth_and_type,
)
from verl_video_tools.services.judge import JudgeConfig


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("Why?\nA. One\nB. Two", "Why?", ["One", "Two"]),
        ("Why?\n(A) One\n(B) Two\n", "Why?", ["One", "Two"]),
        ("Why?\nOptions:\nA: One\nB: Two", "Why?", ["One", "Two"]),
        ("Who?\nA. Smith wrote it.\nIs it so?\nA. Yes\nB. No", "Who?\nA. Smith wrote it.\nIs it so?", ["Yes", "No"]),
        ("Why?\nA. One\nC. Two", "Why?\nA. One\nC. Two", []),
        ("Why?\nA. One", "Why?\nA. One", []),
        ("Why? (A) One", "Why? (A) One", []),
        ("Why?\nA. One\nB. Two\nIt rains.", "Why?\nA. One\nB. Two\nIt rains.", []),
        ("Why?\n(A): One\n(B): Two", "Why?", ["One", "Two"]),
        ("Why?\nA. One\nB. Two\nAnswer now.", "Why?", ["One", "Two"]),
        ("Why?\nA\u3001One\nB\u3001Two", "Why?", ["One", "Two"]),
        ("Why?\n\uff08A\uff09One\n\uff08B\uff09Two", "Why?", ["One", "Two"]),
        ("Why?\nA\uff0eOne\nB\uff1aTwo", "Why?", ["One", "Two"]),
        ("Why?\n[A] One\n[B] Two", "Why?", ["One", "Two"]),
        ("Why?\n\u3010A\u3011One\n\u3010B\u3011Two", "Why?", ["One", "Two"]),
        ("Why?\n\uff21. One\n\uff22. Two", "Why?", ["One", "Two"]),
        ("Why?\na) One\nb) Two", "Why?", ["One", "Two"]),
        ("Why?\n- A. One\n- B. Two", "Why?", ["One", "Two"]),
        ("Why?\n**A.** One\n**B.** Two", "Why?", ["One", "Two"]),
        ("Why?\na) One\nB) Two", "Why?\na) One\nB) Two", []),
        ("Why? (A) One (B) Two", "Why? (A) One (B) Two", []),
        ("Is (A) the dog or (B) the cat larger?", "Is (A) the dog or (B) the cat larger?", []),
        ("Look. Is it Vitamin A. or B. here?", "Look. Is it Vitamin A. or B. here?", []),
        ("Why? ", "Why?", []),
    ],
)
def test_option_lines(text: str, question: str, options: list[str]) -> None:
    assert split_options(text) == (question, options)


@pytest.mark.parametrize(
    "line",
    [
        "Answer with the option's letter from the given choices directly.",
        "Please respond with only the letter of the correct answer.",
        "Please provide your answer by stating the letter followed by the full option.",
        "Select the best answer to the question above. Respond with only the letter (A, B) of the correct option.",
        "Only give the best option.",
        "Please provide only the single option letter (e.g., A, B, C, D, etc.) within the <answer> </answer> tags.",
        "Think step by step, then output the final answer within <answer> tags.",
        "The best answer is:",
        "Your answer: (",
        "Answer:",
        "\n\nAnswer with the letter.\nThe best option is:\n",
        "\u8bf7\u76f4\u63a5\u56de\u7b54\u9009\u9879\u5b57\u6bcd\u3002",
    ],
)
def test_a_line_that_says_how_to_answer_costs_no_options(line: str) -> None:
    assert split_options(f"Why?\nA. One\nB. Two\n{line}") == ("Why?", ["One", "Two"])


@pytest.mark.parametrize("line", ["and a half.", "The man leaves.", "She answers him.", "Two options are left"])
def test_other_lines_below_options_leave_a_text_as_it_is(line: str) -> None:
    text = f"Why?\nA. One\nB. Two\n{line}"
    assert split_options(text) == (text, [])


def test_a_moved_video_is_found_by_the_longest_end_of_its_path(tmp_path: Path) -> None:
    for place in ("clown.mp4", "circus/clown.mp4"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    assert find_moved_video(tmp_path, "/data/circus/clown.mp4") == tmp_path / "circus" / "clown.mp4"
    assert find_moved_video(tmp_path, "file:///data/fair/clown.mp4") == tmp_path / "clown.mp4"
    assert find_moved_video(tmp_path, "D:\\data\\circus\\clown.mp4") == tmp_path / "circus" / "clown.mp4"
    with pytest.raises(RowError, match=r"no video 'lion\.mp4'"):
        find_moved_video(tmp_path, "../circus/lion.mp4")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("A. one ", "A"),
        *((text, "B") for text in ("two", "Two.", "B", " B ", "b", "B.", "(B)", "[B]", "(B) two", "B: two")),
    ],
)
def test_letters_of_answers(answer: str, letter: str) -> None:
    assert letter_of(answer, ["one", "two"], "answer") == letter


@pytest.mark.parametrize(("takes_last", "letter"), [(False, "A"), (True, "C")])
def test_of_options_with_the_same_text_one_is_meant(takes_last: bool, letter: str) -> None:
    assert letter_of("two", ["two", "one", "two", "three"], "answer", takes_last=takes_last) == letter


@pytest.mark.parametrize(("position", "letter"), [(0, "A"), ("1", "B"), (2.0, "C")])
def test_letters_by_the_numbers_of_options(position: Any, letter: str) -> None:
    assert letter_at(position, ["one", "two", "three"], "answer") == letter


@pytest.mark.parametrize(("position", "message"), [(3, "is 3, but there are 3"), (-1, "is -1"), ("x", "must be the")])
def test_numbers_of_no_option(position: Any, message: str) -> None:
    with pytest.raises(RowError, match=message):
        letter_at(position, ["one", "two", "three"], "answer")


@pytest.mark.parametrize("answer", ['["A", "B"]', "A, B", "a and b", "b, a", "(A)(B)"])
def test_several_right_answers_are_named_as_such(answer: str) -> None:
    with pytest.raises(RowError, match="names several options"):
        letter_of(answer, ["one", "two"], "answer")


@pytest.mark.parametrize(
    ("answer", "options", "truth"),
    [
        ("(B)", ["cat", "dog"], ("B", "mc")),
        ("B. dog", ["cat", "dog"], ("B", "mc")),
        ("dog", ["cat", "dog"], ("B", "mc")),
        ("D", ["cat", "dog"], ("D", "mc")),
        ("(b)", [], ("B", "mc")),
        ("B.", [], ("B", "mc")),
        ("B. dog", [], ("B. dog", "open")),
        ("a dog", [], ("a dog", "open")),
    ],
)
def test_truth_and_type_of_an_answer(answer: str, options: list[str], truth: tuple[str, str]) -> None:
    assert truth_and_type(answer, options) == truth


TRUTH_FIELDS = {
    "framethinker-parquet": "ground_truth",
    "longvideo-reason": "answer",
    "lvbench": "answer",
    "mlvu-dev": "answer",
    "mvbench": "answer",
    "video-holmes": "Answer",
    "video-r1": "solution",
    "videozoomer-json": "solution",
}


@pytest.mark.parametrize("name", TRUTH_FIELDS)
def test_letters_of_truths_in_every_format(name: str, tmp_path: Path) -> None:
    """A row of options has an upper-case letter as its truth, however the annotations write it."""
    source, files = get_source(name), prepare(CASES[name], tmp_path)
    entry = next(iter(source.entries(files.annotations)))
    assert isinstance(entry, dict)
    row = source.row(entry, files)
    letter, options = row["reward_model"]["ground_truth"], row["extra_info"]["options"]
    text = options[string.ascii_uppercase.index(letter)]
    holder = entry["reward_model"] if name == "framethinker-parquet" else entry
    for form in (letter, letter.lower(), f"{letter}.", f"({letter})", f"{letter}: {text}", f"({letter}) {text}.", text):
        holder[TRUTH_FIELDS[name]] = form
        assert source.row(entry, files) == row, form
    holder[TRUTH_FIELDS[name]] = "(Z)"
    with pytest.raises(RowError, match=r"must be one of the letters|is none of the options"):
        source.row(entry, files)


@pytest.mark.parametrize("answer", ["three", "C", "A. two", ""])
def test_answers_that_are_no_option(answer: str) -> None:
    with pytest.raises(RowError, match="the field 'answer' is none of the options"):
        letter_of(answer, ["one", "two"], "answer")


@pytest.mark.parametrize("options", ["['a', 'b']", ["a"], {"A": "a"}, 5])
def test_options_that_are_no_list(options: Any) -> None:
    with pytest.raises(RowError, match="the field 'candidates' must list the options"):
        listed_options(options, "candidates")


@pytest.mark.parametrize(
    ("truth", "question_type"),
    [(truth, "numeric") for truth in ("12", "-5", "1,000", "-1,234,567.5", "3.", ".5", "0.25")]
    + [(truth, "open") for truth in ("nan", "inf", "1e5", "1_000", "12,34", "+5", "5 kg", "a dozen", "1,000,")],
)
def test_open_questions_are_numeric_where_the_truth_is_a_number(truth: str, question_type: str, tmp_path: Path) -> None:
    (tmp_path / "validation_Finance_1.mp4").touch()
    entry = {"id": "validation_Finance_1", "question": "How many?", "question_type": "open", "answer": truth}
    files = BenchmarkFiles(annotations=tmp_path / "Adaptation.json", videos=tmp_path)
    row = get_benchmark("video-mmmu").row({**entry, "track": "Adaptation"}, files)
    assert row["extra_info"]["question_type"] == question_type
    check_question(Sample.from_row(row), JudgeConfig())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("75.5", 75.5), (3, 3.0), ("01:15", 75.0), ("1:01:15.5", 3675.5), ("-3", None), ("nan", None), ("soon", None)],
)
def test_clock_times(text: Any, seconds: float | None) -> None:
    assert clock_seconds(text) == seconds


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("0:05", 6, (5.0, 6.0)),
        (0, "0.1", (0.0, 0.1)),
        (5, 5, None),  # no answer can overlap it
        (6, 5, None),
        (None, 5, None),
        (5, "soon", None),
    ],
)
def test_a_segment_has_a_length(start: Any, end: Any, expected: tuple[float, float] | None) -> None:
    assert segment(start, end) == expected


@pytest.mark.parametrize(
    ("source", "question_type"),
    [
        *((source, "segment") for source in ("TimeR1", "time-r1", "TVG-R1", "TVG-R1-charades")),
        *((source, "open") for source in ("selfqa", "TVG", "TimeR1-cot", None)),
    ],
)
def test_the_source_of_a_longvt_row_says_whether_it_asks_for_a_segment(
    source: str | None, question_type: str, tmp_path: Path
) -> None:
    (tmp_path / "a.mp4").touch()
    entry = {
        "data_source": source,
        "videos": [{"video": "file:///data/a.mp4"}],
        "reward_model": {"ground_truth": "[1, 2]"},
        "extra_info": {"question": "When?", "video_segment": [1, 2]},
    }
    row = LongVTParquet().row(entry, BenchmarkFiles(annotations=tmp_path / "rl.parquet", videos=tmp_path))
    assert row["extra_info"]["question_type"] == question_type
