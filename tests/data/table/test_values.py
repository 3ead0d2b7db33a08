"""What a cell says: options, segments, types and videos in the forms that tables have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.table.tables import touch
from verl_video_tools.core.errors import RowError
from verl_video_tools.data.table import (
    as_text,
    find_table_video,
    is_empty,
    options_of,
    segment_of,
    video_name_of,
)

TEXTS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)


@pytest.mark.parametrize(
    "values",
    [
        [["a lamp", "a chair"]],
        ['["a lamp", "a chair"]'],
        ["a lamp | a chair"],
        ["a lamp|a chair|"],
        ["a lamp", "a chair"],
        ["a lamp", "a chair", None, ""],
        [["a lamp", "a chair", "", None]],
    ],
)
def test_options(values: list[Any]) -> None:
    assert options_of(values) == ["a lamp", "a chair"]


@pytest.mark.parametrize("values", [[None], [""], ["  "], [[]], [float("nan")], [None, "", None]])
def test_no_options(values: list[Any]) -> None:
    assert options_of(values) == []


@pytest.mark.parametrize(
    "values", [["a lamp, a chair"], ["a lamp"], [["a lamp"]], ["['a', 'b']"], ["a", "", "c"], ["", "b"], ["[1"]]
)
def test_options_that_cannot_be_separated(values: list[Any]) -> None:
    with pytest.raises(RowError, match=r"options cannot be separated|option \d is empty"):
        options_of(values)


@pytest.mark.parametrize("values", [[["x", None, "y"]], [["x", "", "y"]], ["x||y"], ['["","y"]']])
def test_an_empty_option_moves_no_letter(values: list[Any]) -> None:
    """Left out in silence, it made B of the third option."""
    with pytest.raises(RowError, match=r"option \d is empty"):
        options_of(values)


@given(st.lists(TEXTS, min_size=2, max_size=8))
def test_options_come_back_whichever_way_they_are_written(options: list[str]) -> None:
    for values in ([options], [json.dumps(options)], [" | ".join(options)], options):
        assert options_of(values) == options


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["[2.5, 7]"], (2.5, 7.0)),
        ([[2.5, 7]], (2.5, 7.0)),
        ([["0:02.5", 7]], (2.5, 7.0)),
        (["0:02 - 0:07"], (2.0, 7.0)),
        (["from 2.5 s to 7 s"], (2.5, 7.0)),
        ([2.5, 7], (2.5, 7.0)),
        (["2.5", "00:07"], (2.5, 7.0)),
        ([None], None),
        (["", None], None),
    ],
)
def test_segments(values: list[Any], expected: tuple[float, float] | None) -> None:
    assert segment_of(values) == expected


@pytest.mark.parametrize(
    "values", [["soon"], [[7, 2]], [7, 2], [1, None], [[1, 2, 3]], [5], [[[1, 2], 5]], ["[[1, 2], [4, 6]]"]]
)
def test_what_is_no_segment(values: list[Any]) -> None:
    with pytest.raises(RowError, match="the segment must name one start and end"):
        segment_of(values)


def test_cells() -> None:
    assert [as_text(value) for value in (3.0, 2.5, " x ", ["a"], 7, None)] == ["3", "2.5", "x", '["a"]', "7", ""]
    assert [is_empty(value) for value in (None, "", " ", [], {}, float("nan"), 0, "0", False)] == [True] * 6 + [
        False
    ] * 3


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a/b.mp4", "a/b.mp4"),
        ("file:///a/b.mp4", "/a/b.mp4"),
        ("a\\b.mp4", "a/b.mp4"),
        (217, "217"),
    ],
)
def test_named_videos(value: Any, name: str) -> None:
    assert video_name_of(value) == name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "no video is named"),
        (None, "no video is named"),
        (["a.mp4", "b.mp4"], "a row names one video"),
        ("https://x.org/a.mp4", "is an address"),
        (2.5, "a row names one video"),
    ],
)
def test_what_names_no_video(value: Any, message: str) -> None:
    with pytest.raises(RowError, match=message):
        video_name_of(value)


def test_videos_are_found(tmp_path: Path) -> None:
    touch(tmp_path, "table/clips/a.mp4", "table/b.MKV", "moved/x/a.mp4", "c.mp4")
    table, moved = tmp_path / "table", tmp_path / "moved"
    assert find_table_video("clips/a.mp4", [table]) == table / "clips/a.mp4"
    assert find_table_video("clips/a", [table]) == table / "clips/a.mp4"
    assert find_table_video("b", [tmp_path, table]) == table / "b.MKV"
    assert find_table_video("../c.mp4", [table]) == tmp_path / "c.mp4"
    assert find_table_video(str(tmp_path / "c.mp4"), [moved], moved=True) == tmp_path / "c.mp4"
    assert find_table_video("clips/a.mp4#t=2,4.5", [table]) == Path(f"{table}/clips/a.mp4#t=2,4.5")
    assert find_table_video("/data/of/another/x/a.mp4", [moved], moved=True) == moved / "x/a.mp4"
    with pytest.raises(RowError, match=r"no video 'clips/z.mp4' \(looked for .*/table/clips/z.mp4\); put it there, or"):
        find_table_video("clips/z.mp4", [table])
