"""Which column is taken for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.data.table.tables import write_jsonl
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.table import Columns, find_columns
from verl_video_tools.data.table_files import open_table

ASKED = {"question": "Who enters last?", "answer": "A", "video": "a.mp4"}


def found(folder: Path, records: Sequence[Mapping[str, Any]], *assignments: str) -> Columns:
    return find_columns(open_table(write_jsonl(folder / "t.jsonl", records)), assignments)


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (ASKED, {"question": ("question",), "answer": ("answer",), "video": ("video",)}),
        (
            {"Problem": "Who?", "LABEL": "a boy", "Video Path": "a.mp4", "Choices": ["a boy", "a girl"]},
            {"question": ("Problem",), "answer": ("LABEL",), "options": ("Choices",), "video": ("Video Path",)},
        ),
        ({**ASKED, "a": "x", "b": "y"}, {"options": ("a", "b"), "answer": ("answer",)}),
        ({**ASKED, "A": "x", "B": "y", "D": "z"}, {"options": ("A", "B")}),
        ({**ASKED, "B": "y", "C": "z"}, {"options": None}),
        ({**ASKED, "A": "x"}, {"options": None}),
        ({**ASKED, "option_1": "x", "option_2": "y"}, {"options": None}),
        ({**ASKED, "start": 1, "end": 2}, {"segment": ("start", "end")}),
        ({**ASKED, "timestamp": "0:01"}, {"segment": None}),
        ({**ASKED, "start": 1}, {"segment": None}),
        ({**ASKED, "question_type": "mcq"}, {"type": ("question_type",)}),
        ({**ASKED, "question_id": 7}, {"id": ("question_id",)}),
    ],
)
def test_by_name(record: dict[str, Any], names: dict[str, tuple[str, ...] | None], tmp_path: Path) -> None:
    columns = found(tmp_path, [record])
    for field, expected in names.items():
        assert columns.names.get(field) == expected


def test_a_column_of_another_name_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no column was found for video; .* name it: --map video=COLUMN"):
        found(tmp_path, [{"question": "Who?", "answer": "a", "where": "x/a.mp4"}])


def test_what_is_said_wins(tmp_path: Path) -> None:
    record = {**ASKED, "text, long": "Why?", "a+b": "x", "x": "1", "y": "2", "qid": 1}
    columns = found(tmp_path, [record], "question=text, long,answer = a+b", "options=x+y,id=")
    assert columns.names["question"] == ("text, long",) and columns.names["answer"] == ("a+b",)
    assert columns.names["options"] == ("x", "y") and "id" not in columns.names
    assert columns.names["video"] == ("video",)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("question", "--map takes FIELD=COLUMN"),
        ("colour=x", "--map takes FIELD=COLUMN, once for each of question, answer"),
        ("question=none", "there is no column 'none'; there are question, answer, video"),
        ("question=answer,question=question", "once for each of"),
        ("video=video+answer", "video takes 1 column at most"),
        ("segment=video+answer+question", "segment takes 2 columns at most"),
        ("answer=", "no column was found for answer"),
    ],
)
def test_impossible_maps(assignment: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        found(tmp_path, [ASKED], assignment)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("answers", "first"),
    [
        (["A", "B"], None),
        (["a boy", 1], None),
        ([0, 1], 0),
        (["1", "0", "1"], 0),
        ([1, 2], 1),
        ([1.0, 2.0], 1),
    ],
)
def test_how_answers_name_options(answers: list[Any], first: int | None, tmp_path: Path) -> None:
    records = [{**ASKED, "answer": answer, "options": ["a boy", "a girl"]} for answer in answers]
    assert found(tmp_path, records).first_option == first


def test_answers_that_may_be_counted_from_either(tmp_path: Path) -> None:
    records = [{**ASKED, "answer": 1, "options": ["a boy", "a girl"]}]
    with pytest.raises(UsageError, match="nothing says whether the first option is 0 or 1"):
        found(tmp_path, records)
    records = [{**ASKED, "answer": "2", "options": ["1", "2"]}]
    assert found(tmp_path, records).first_option is None, "it is the text of an option"


def test_a_question_about_a_count_does_not_make_numbers_of_options_texts(tmp_path: Path) -> None:
    by_number = [{**ASKED, "answer": answer, "options": ["a boy", "a girl", "a dog"]} for answer in (0, 2)]
    counting = {**ASKED, "answer": 2, "options": ["1", "2", "3"]}
    assert found(tmp_path, [counting, *by_number]).first_option == 0
    slip = {**ASKED, "answer": 7, "options": ["1", "2", "3"]}
    assert found(tmp_path, [counting, slip]).first_option is None, "7 is the number of no option"
