"""How fields of annotations are read: option lines, letters, lists, moved videos, times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.errors import RowError
from verl_video_tools.evaluation.benchmarks import BenchmarkFiles, get_benchmark
from verl_video_tools.evaluation.benchmarks.fields import (
    find_moved_video,
    letter_of,
    listed_options,
    split_options,
)
from verl_video_tools.judge import JudgeConfig
from verl_video_tools.rewards.grading import check_question
from verl_video_tools.rewards.segments import clock_seconds
from verl_video_tools.types import Sample


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("Why?\nA. One\nB. Two", "Why?", ["One", "Two"]),
        ("Why?\n(A) One\n(B) Two\n", "Why?", ["One", "Two"]),
        ("Why?\nOptions:\nA: One\nB: Two", "Why?", ["One", "Two"]),
        ("Who?\nA. Smith wrote it.\nIs it so?\nA. Yes\nB. No", "Who?\nA. Smith wrote it.\nIs it so?", ["Yes", "No"]),
        ("Why?\nA. One\nC. Two", "Why?\nA. One\nC. Two", []),
        ("Why?\nA. One\nB. Two\nAnswer now.", "Why?\nA. One\nB. Two\nAnswer now.", []),
        ("Why? ", "Why?", []),
    ],
)
def test_option_lines(text: str, question: str, options: list[str]) -> None:
    assert split_options(text) == (question, options)


def test_a_moved_video_is_found_by_the_longest_end_of_its_path(tmp_path: Path) -> None:
    for place in ("clown.mp4", "circus/clown.mp4"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    assert find_moved_video(tmp_path, "/data/circus/clown.mp4") == tmp_path / "circus" / "clown.mp4"
    assert find_moved_video(tmp_path, "file:///data/fair/clown.mp4") == tmp_path / "clown.mp4"
    with pytest.raises(RowError, match=r"no video 'lion\.mp4'"):
        find_moved_video(tmp_path, "../circus/lion.mp4")


@pytest.mark.parametrize(("answer", "letter"), [("two", "B"), ("B", "B"), ("(B) two", "B"), ("A. one ", "A")])
def test_letters_of_answers(answer: str, letter: str) -> None:
    assert letter_of(answer, ["one", "two"], "answer") == letter


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
