"""Files that grow by whole lines, and the loop that works through what is left to make."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.data.row_files import make_row, write_rows
from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.data.append import append_record, appended, locked_folder, work_through
from verl_video_tools.data.classify import evaluate

LINE = b'{"step": 1}\n'


@pytest.mark.parametrize("end", [b"", b'{"step": 2, "ui', b"\0" * 4096, b'{"st' + b"\0" * 30])
def test_the_end_that_a_lost_process_or_machine_left_is_cut_off(end: bytes, tmp_path: Path) -> None:
    """A file system may give a file the length of what it had no time to write."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(LINE + end)
    with appended(path) as file:
        append_record(file, {"step": 2})
    assert path.read_bytes() == LINE + b'{"step": 2}\n'


def test_an_end_of_another_kind_stays_and_the_command_that_removes_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(LINE + b"\xff\xfe rubbish")
    with pytest.raises(UsageError, match=f"remove that end: truncate -s {len(LINE)} "), appended(path):
        pass
    assert path.read_bytes() == LINE + b"\xff\xfe rubbish"


async def test_the_second_of_two_classifications_into_a_folder_ends_before_it_locks_a_file(tmp_path: Path) -> None:
    """Where it held one of two files, the first would end, too."""
    rows, folder = write_rows(tmp_path / "rows.parquet", [make_row("a.mp4")]), tmp_path / "out"
    with locked_folder(folder), pytest.raises(UsageError, match="out is being written by another process"):
        await evaluate(rows, folder, Mock(), Mock())
    assert list(folder.iterdir()) == []


async def test_so_many_items_are_under_way_and_progress_counts_those_done() -> None:
    under_way: list[int] = []
    most, told = 0, list[tuple[int, int]]()

    async def work(item: int) -> None:
        nonlocal most
        under_way.append(item)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(item)

    await work_through(range(5), work, 2, lambda *counts: told.append(counts), num_done=3)
    assert most == 2
    assert told == [(4, 8), (5, 8), (6, 8), (7, 8), (8, 8)]


async def test_a_lost_endpoint_cancels_what_is_under_way() -> None:
    cancelled = []

    async def work(item: int) -> None:
        if item == 1:
            raise EndpointError("nothing answers")
        try:
            await asyncio.sleep(60 * item)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    with pytest.raises(EndpointError, match=r"^nothing answers; 1 of 4 are done$"):
        await work_through(range(4), work, 3, stopped="; {} of {} are done")
    assert sorted(cancelled) == [2, 3]
