"""Rows with the faults to plant."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.loop_check.faults import FAULTS
from verl_video_tools.loop_check.plant import NUM_CLEAN, main, planted

ROUND = [None] * NUM_CLEAN + list(FAULTS)


def rows(number: int) -> pa.Table:
    """As converted for verl's tool loop."""
    return pa.table(
        {
            "agent_name": ["tool_agent"] * number,
            "images": [[{"bytes": bytes([i])}] for i in range(number)],
            "extra_info": [
                {"index": i, "tools_kwargs": {"zoom": {"create_kwargs": {"video_path": f"{i}.mp4"}}}}
                for i in range(number)
            ],
        }
    )


def test_clean_rows_and_each_fault_in_turn() -> None:
    table = planted(rows(25))
    infos = table.column("extra_info").to_pylist()
    assert [info.pop("fault") for info in infos] == (ROUND * 3)[:25]
    assert infos == rows(25).column("extra_info").to_pylist()
    assert table.drop_columns("extra_info") == rows(25).drop_columns("extra_info")
    assert table.column_names == rows(25).column_names


def test_rows_that_have_faults_get_others() -> None:
    table = planted(planted(rows(12)), ["wrong_order"])
    assert [info["fault"] for info in table.column("extra_info").to_pylist()] == [None, None, "wrong_order"] * 4


@pytest.mark.parametrize(
    ("table", "faults", "message"),
    [
        (rows(25), ["my_fault"], "there is no fault 'my_fault'"),
        (rows(9), list(FAULTS), "9 rows for 10 kinds"),
        (rows(25).drop_columns("extra_info"), list(FAULTS), "no column extra_info"),
        (pa.table({"extra_info": ["text"] * 25}), list(FAULTS), "no column extra_info"),
    ],
)
def test_what_cannot_be_planted(table: pa.Table, faults: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planted(table, faults)


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "rows.parquet", tmp_path / "planted.parquet"
    pq.write_table(rows(10), source)
    assert main([str(source), str(target)]) == 0
    assert [info["fault"] for info in pq.read_table(target).column("extra_info").to_pylist()] == ROUND
    assert main([str(source), str(target), "--fault", "my_fault"]) == 2
    assert main([str(tmp_path / "none.parquet"), str(target)]) == 2
    assert "my_fault" in capsys.readouterr().err
