"""Rows of a sample are spread over the whole of several files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.launch.checks.rows import files_of, sample_rows


def write(path: Path, first: int, count: int) -> str:
    rows = [{"number": number, "agent_name": f"method{number % 3}"} for number in range(first, first + count)]
    schema = pa.schema({"number": pa.int64(), "agent_name": pa.string()})
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return str(path)


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3), num_wanted=st.integers(1, 400))
def test_rows_are_evenly_spaced(sizes: list[int], num_wanted: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rows")
    files = [write(folder / f"{place}.parquet", sum(sizes[:place]), size) for place, size in enumerate(sizes)]
    total = sum(sizes)
    if not total:
        with pytest.raises(RowError, match="no rows"):
            sample_rows(files, num_wanted)
        return
    sampled = sample_rows(files, num_wanted)
    assert sampled.num_rows == total
    assert len(sampled.rows) == min(total, num_wanted)
    numbers = [row["number"] for row in sampled.rows.values()]
    gaps = {later - earlier for earlier, later in itertools.pairwise(numbers)}
    assert numbers[0] == 0 and max(gaps, default=1) - min(gaps, default=1) <= 1
    assert sampled.agent_names == {f"method{number % 3}" for number in range(total)}, "of all rows"


def test_a_row_is_called_by_its_place_in_its_file(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.parquet", 0, 3), write(tmp_path / "b.parquet", 3, 3)]
    assert list(sample_rows(files, 9).rows)[2:4] == [f"{files[0]} row 2", f"{files[1]} row 0"]
    assert list(sample_rows(files[:1], 9).rows) == ["row 0", "row 1", "row 2"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read rows from .*none.parquet"):
        sample_rows([str(tmp_path / "none.parquet")], 5)


def test_files_of_an_option() -> None:
    assert files_of("/a") == ("/a",)
    assert files_of(["/a", "/b"]) == ("/a", "/b")
    assert files_of(None) == ()
