"""The loop that works through what is left to make."""

from __future__ import annotations

import asyncio

import pytest

from verl_video_tools.core.errors import EndpointError
from verl_video_tools.data.append import work_through


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
