"""Which column is taken for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.table import find_columns

COLUMNS = ("question", "answer", "video")
PATH = Path("t.csv")


@pytest.mark.parametrize(
    ("others", "names"),
    [
        ((), {"question": ("question",), "answer": ("answer",), "video": ("video",), "segment": None}),
        (("Options", "ID", "TYPE"), {"options": ("Options",), "id": ("ID",), "type": ("TYPE",)}),
        (("a", "b", "choices", "question_type", "timestamp"), {"options": None, "type": None, "segment": None}),
        (("start", "end"), {"segment": ("start", "end")}),
        (("start", "end", "segment"), {"segment": ("segment",)}),
        (("start",), {"segment": None}),
    ],
)
def test_by_name(others: tuple[str, ...], names: dict[str, Any]) -> None:
    columns = find_columns(PATH, COLUMNS + others, ())
    for field, expected in names.items():
        assert columns.get(field) == expected


def test_a_column_of_another_name_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"no column is called video; .* name it: --map video=COLUMN"):
        find_columns(PATH, ("question", "answer", "where"), ())


def test_a_map_wins() -> None:
    others = ("text, long", "a+b", "x", "y", "id", "start", "end")
    columns = find_columns(PATH, COLUMNS + others, ("question=text, long,answer = a+b", "options=x+y,id=,segment="))
    assert columns == {
        "question": ("text, long",),
        "answer": ("a+b",),
        "options": ("x", "y"),
        "video": ("video",),
    }


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("question", "--map takes FIELD=COLUMN"),
        ("colour=x", "--map takes FIELD=COLUMN, once for each of question, answer"),
        ("question=none", "there is no column 'none'; there are question, answer, video"),
        ("question=answer,question=question", "once for each of"),
        ("video=video+answer", "video takes 1 column at most"),
        ("segment=video+answer+question", "segment takes 2 columns at most"),
        ("answer=", "no column is called answer"),
    ],
)
def test_impossible_maps(assignment: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        find_columns(PATH, COLUMNS, (assignment,))
    assert message in str(error.value)
