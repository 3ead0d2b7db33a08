"""`make_row` and `write_rows`: rows of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.data.row_files import read_rows
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.rows import ROW_SCHEMA, make_row, write_rows
from verl_video_tools.data.validate import validate_file


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"answer": "B", "options": ["a lamp", "a chair"]}, ("mc", "B", "Who?\nA. a lamp\nB. a chair")),
        ({"answer": "a chair", "options": ["A. a lamp", "B. a chair"]}, ("mc", "B", "Who?\nA. a lamp\nB. a chair")),
        ({"answer": "B", "question": "Who?\n(A) he\n(B) she"}, ("mc", "B", "Who?\nA. he\nB. she")),
        ({"answer": "B"}, ("mc", "B", "Who?")),
        ({"answer": 3}, ("numeric", "3", "Who?")),
        ({"answer": "1,000.50"}, ("numeric", "1,000.50", "Who?")),
        ({"answer": [2.5, 7]}, ("segment", "[2.5, 7]", "Who?")),
        ({"answer": "a boy"}, ("open", "a boy", "Who?")),
        ({"answer": "3", "question_type": "open"}, ("open", "3", "Who?")),
    ],
)
def test_types_and_truths(given: dict[str, Any], expected: tuple[str, str, str]) -> None:
    row = make_row(**{"question": "Who?", "video_path": "v.mp4", **given})
    extra_info = row["extra_info"]
    assert (extra_info["question_type"], row["reward_model"]["ground_truth"], extra_info["question"]) == expected
    assert row["prompt"] == [{"role": "user", "content": expected[2]}]
    assert Sample.from_row(row).question_type == expected[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"question": " "}, "the question is empty"),
        ({"options": ["x", "y"], "answer": "C"}, "none of the options: 'C'"),
        ({"options": ["x", "y"], "answer": "A", "question_type": "open"}, "a question with options is of type mc, got"),
        ({"options": ["x", "y", "x"], "answer": "C"}, "the options C and A are equal, 'x'"),
        ({"video_segment_seconds": [7, 2]}, r"0 <= start < end, got \[7, 2\]"),
        ({"video_segment_seconds": "soon"}, r"must be \[start, end\] in seconds with .*, got 'soon'"),
        ({"question_type": "riddle"}, "question_type must be one of mc"),
    ],
)
def test_what_is_no_row(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        make_row(**{"question": "Who?", "answer": "a boy", "video_path": "v.mp4", **given})


def test_options_that_the_question_lists_are_not_appended_again() -> None:
    question = "What is it?\nA. a lamp\nB. a chair"
    row = make_row(question, "B", "v.mp4", options=["a lamp", "a chair"])
    assert row == make_row(question, "B", "v.mp4")
    assert row["extra_info"]["question"] == question


def test_an_unknown_method() -> None:
    with pytest.raises(UsageError, match="no method 'magic'"):
        make_row("Who?", "a boy", "v.mp4", method="magic")


def test_a_file_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as `vvt data convert` writes one, so that a run can read both."""
    monkeypatch.chdir(tmp_path)
    Path("v.mp4").touch()
    options = {"video_segment_seconds": (1, 2.5), "question_id": "q7", "classification": "direct"}
    rows = [make_row("Who?", "B", "v.mp4#t=1,2", options=["x", "y"]), make_row("Who?", "3", "v.mp4", **options)]
    assert write_rows(rows, "rows.parquet") == 2
    assert pq.read_schema("rows.parquet").equals(ROW_SCHEMA)
    first, second = read_rows(tmp_path / "rows.parquet")
    assert first["extra_info"]["video_path"] == f"{tmp_path}/v.mp4#t=1,2"
    assert second["extra_info"]["video_segment"] == [1.0, 2.5] and second["extra_info"]["question_id"] == "q7"
    assert not [report for report in validate_file(tmp_path / "rows.parquet") if report.problems]
    with pytest.raises(UsageError, match=r"rows\.parquet exists; give another name, or overwrite=True"):
        write_rows(rows[:1], "rows.parquet")
    assert write_rows(rows[:1], "rows.parquet", overwrite=True) == 1
    with pytest.raises(UsageError, match="there are no rows"):
        write_rows([], "none.parquet")


def test_rows_that_are_not_alike(tmp_path: Path) -> None:
    plain, own = make_row("Who?", "x", "v.mp4"), make_row("Who?", "x", "v.mp4", method="longvt")
    with pytest.raises(RowError, match="row 0 lacks 'agent_name'"):
        write_rows([plain, own], tmp_path / "rows.parquet")
    lost = {name: value for name, value in plain.items() if name != "prompt"}
    with pytest.raises(RowError, match="row 0 lacks 'prompt'"):
        write_rows([lost], tmp_path / "rows.parquet")
    with pytest.raises(RowError, match="row 0 lacks 'split', or has it and others do not"):
        write_rows([{**plain, "split": "train"}], tmp_path / "rows.parquet")
    plain["extra_info"]["colour"] = "red"
    with pytest.raises(RowError, match="row 1 lacks 'colour', or has it and others do not"):
        write_rows([make_row("Who?", "x", "v.mp4"), plain], tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("turns", "fault"),
    [
        (["<think>seen</think><answer>x</answer>"], None),
        (["I saw it, and <answer>x</answer>"], None),
        (["He is x."], "turn 0 must answer in the grammar of longvt, got 'He is x.'"),
        (["<think>x?</think>", "<answer>x</answer>"], "turn 0 must ask for another one in the grammar of longvt"),
    ],
)
def test_turns_that_are_no_rollout_are_named(turns: list[str], fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "v.mp4").touch()
    rows = [make_row("Who?", "x", tmp_path / "v.mp4", method="longvt", turns=turns)]
    write_rows(rows, tmp_path / "rows.parquet")
    (report,) = validate_file(tmp_path / "rows.parquet")
    assert (report.problems[0] if report.problems else "").startswith(fault or "") and bool(report.problems) == bool(
        fault
    )


def test_turns_with_weights() -> None:
    turns = ["<answer>x</answer>"] * 2
    row = make_row("Who?", "x", "v.mp4", method="longvt", turns=turns, turn_weights=[0, 0.5])
    assert row["turn_weights"] == [0, 0.5]
    with pytest.raises(RowError, match=r"a number from 0 for each of its 2 turns, one of them above 0, got \[1\]"):
        make_row("Who?", "x", "v.mp4", method="longvt", turns=turns, turn_weights=[1])


def test_turns_need_a_method() -> None:
    with pytest.raises(UsageError, match="name it, such as method='longvt'"):
        make_row("Who?", "x", "v.mp4", turns=["<answer>x</answer>"])
